//! Reads SPDX licence expressions, as far as crates use them (and the old `MIT/Apache-2.0`).

/// Whether the licensee can satisfy the expression with licences of the list alone.
pub fn allowed(expression: &str, list: &[&str]) -> Result<bool, String> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader {
        words: &words,
        at: 0,
        list,
    };
    let answer = reader.either()?;
    match reader.words.get(reader.at) {
        None => Ok(answer),
        Some(word) => Err(format!("`{word}` is not expected there")),
    }
}

struct Reader<'a> {
    words: &'a [&'a str],
    at: usize,
    list: &'a [&'a str],
}

impl Reader<'_> {
    fn take(&mut self, word: &str) -> bool {
        let found = self.words.get(self.at) == Some(&word);
        self.at += usize::from(found);
        found
    }

    fn either(&mut self) -> Result<bool, String> {
        let mut answer = self.all()?;
        while self.take("OR") {
            answer |= self.all()?;
        }
        Ok(answer)
    }

    fn all(&mut self) -> Result<bool, String> {
        let mut answer = self.term()?;
        while self.take("AND") {
            answer &= self.term()?;
        }
        Ok(answer)
    }

    fn term(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let answer = self.either()?;
            return if self.take(")") {
                Ok(answer)
            } else {
                Err("a bracket stays open".to_owned())
            };
        }
        let name = self.name()?;
        let full = if self.take("WITH") {
            format!("{name} WITH {}", self.name()?)
        } else {
            name
        };
        Ok(self.list.contains(&full.as_str()))
    }

    fn name(&mut self) -> Result<String, String> {
        match self.words.get(self.at) {
            Some(word) if !["AND", "OR", "WITH", "(", ")"].contains(word) => {
                self.at += 1;
                Ok((*word).to_owned())
            }
            Some(word) => Err(format!("`{word}` is not expected there")),
            None => Err("it ends in the middle".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &[&str] = &["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"];

    #[test]
    fn expressions_are_decided() {
        for (expression, want) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT OR GPL-3.0", true),
            ("MIT AND GPL-3.0", false),
            ("GPL-3.0 AND X OR MIT", true),
            ("MIT AND (GPL-3.0 OR Apache-2.0)", true),
            ("(MIT OR Apache-2.0) AND GPL-3.0", false),
            ("MIT/Apache-2.0", true),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("MIT WITH LLVM-exception", false),
        ] {
            assert_eq!(allowed(expression, LIST), Ok(want), "{expression}");
        }
    }

    #[test]
    fn nonsense_is_an_error_and_not_a_yes() {
        for expression in [
            "",
            "MIT OR",
            "(MIT",
            "MIT)",
            "MIT Apache-2.0",
            "OR MIT",
            "MIT WITH",
        ] {
            assert!(allowed(expression, LIST).is_err(), "{expression}");
        }
    }
}
