//! What is wrong with a value, in the words of the API: readers speak of the types they read into.

/// The longest piece of a caller's own text that a problem repeats, in characters.
const QUOTED_MAX_CHARS: usize = 100;

/// The message of a reader, for those who read the contract and not this code. Messages of the ids and names of the
/// contract pass unchanged.
pub fn plain(what: &str) -> String {
    if let Some((kind, rest)) = what
        .strip_prefix("invalid ")
        .and_then(|rest| rest.split_once(": "))
        && let Some((found, expected)) = rest.rsplit_once(", expected ")
        && matches!(kind, "type" | "value")
    {
        let wanted = wanted(expected);
        return match seen(found).as_str() {
            // Where it may be absent, that is how nothing is said; where it may not, the next refusal says so.
            "null" => {
                format!(
                    "expected {wanted}, found null; give a value, or leave the field out where it may be absent"
                )
            }
            found => format!("expected {wanted}, found {found}"),
        };
    }
    if let Some((word, known)) = what
        .strip_prefix("unknown variant `")
        .and_then(|rest| rest.rsplit_once("`, expected "))
    {
        return format!(
            "{:?} is not known here; expected {}",
            short(word),
            known.replace('`', "")
        );
    }
    match what {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "expected a whole number".to_owned()
        }
        "number too large to fit in target type" => "the number is too large".to_owned(),
        "number too small to fit in target type" => "the number is too small".to_owned(),
        "invalid float literal" => "expected a number".to_owned(),
        "provided string was not `true` or `false`" => "expected true or false".to_owned(),
        text if text.starts_with("data did not match any variant") => {
            "the value has none of the forms that are known here".to_owned()
        }
        text => match text.split_once(" of struct ") {
            Some((before, _)) => short(before),
            None => text.to_owned(),
        },
    }
}

fn wanted(expected: &str) -> String {
    let known = match expected {
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number in the range of this field",
        "u8" | "u16" | "u32" | "u64" | "usize" => {
            "a whole number from 0 up, in the range of this field"
        }
        "f32" | "f64" => "a number",
        "a string" | "string" | "str" | "a borrowed string" | "a formatted string" => "text",
        "a boolean" | "bool" => "true or false",
        "a map" | "map" => "an object",
        "a sequence" | "sequence" => "a list",
        "unit" => "null",
        text if text.starts_with("struct ") || text.starts_with("internally tagged enum ") => {
            "an object"
        }
        text if text.starts_with("enum ") || text.contains("identifier") => {
            "one of the known words"
        }
        text if text.starts_with("tuple ") => "a list",
        text => text,
    };
    known.to_owned()
}

/// What was found, as JSON calls it.
fn seen(found: &str) -> String {
    let known = match found {
        "map" => "an object",
        "sequence" => "a list",
        "null" | "unit value" | "Option value" => "null",
        "enum" | "unit variant" | "newtype variant" | "tuple variant" | "struct variant" => {
            "a word"
        }
        text => {
            for (kind, name) in [
                ("string ", "the text "),
                ("integer ", "the number "),
                ("floating point ", "the number "),
                ("number ", "the number "),
                ("boolean ", ""),
                ("character ", "the text "),
            ] {
                if let Some(value) = text.strip_prefix(kind) {
                    return format!("{name}{}", short(value.trim_matches('`')));
                }
            }
            return short(text);
        }
    };
    known.to_owned()
}

/// The beginning of a text that a caller chose.
pub fn short(text: &str) -> String {
    match text.char_indices().nth(QUOTED_MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_speaks_of_the_contract_and_not_of_types() {
        for (what, expected) in [
            (
                "invalid value: integer `99999`, expected i16",
                "expected a whole number in the range of this field, found the number 99999",
            ),
            (
                "invalid type: map, expected a string",
                "expected text, found an object",
            ),
            (
                "invalid type: string \"a, expected b\", expected struct Budget",
                "expected an object, found the text \"a, expected b\"",
            ),
            (
                "invalid type: null, expected a string",
                "expected text, found null; give a value, or leave the field out where it may be absent",
            ),
            ("invalid digit found in string", "expected a whole number"),
            (
                "number too large to fit in target type",
                "the number is too large",
            ),
            (
                "unknown variant `flying`, expected one of `queued`, `ended`",
                "\"flying\" is not known here; expected one of queued, ended",
            ),
            (
                "a name has at most 63 characters",
                "a name has at most 63 characters",
            ),
        ] {
            assert_eq!(plain(what), expected);
        }
        assert!(
            plain(&format!(
                "invalid type: string \"{}\", expected u32",
                "é".repeat(9000)
            ))
            .len()
                < 400
        );
    }
}
