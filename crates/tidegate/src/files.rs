//! Files that a command line names: what is wrong with one is said with the flag, the file and what to do.

use std::{io::ErrorKind, path::Path};

use serde::de::DeserializeOwned;
use tidegate_model::strict;

use crate::failure::{Failure, Outcome};

/// The bytes of a file. `flag` is how the command line names it.
pub fn bytes(flag: &str, path: &Path) -> Outcome<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::NotFound => "give the path of a file that is there",
            ErrorKind::PermissionDenied => "let this user read it, or give another file",
            ErrorKind::IsADirectory => "give a file, not a directory",
            _ => "give a file that can be read",
        };
        let shown = path.display();
        Failure::usage(format!("{flag}: cannot read {shown}: {error}")).remedy(remedy)
    })
}

/// A file of JSON, read into what it is to be; `remedy` says what such a file looks like.
pub fn json<T: DeserializeOwned>(flag: &str, path: &Path, what: &str, remedy: &str) -> Outcome<T> {
    strict::from_slice(&bytes(flag, path)?).map_err(|error| {
        let shown = path.display();
        let wrong = if error.inner().is_data() {
            format!("is no {what}")
        } else {
            "is no JSON".to_owned()
        };
        Failure::usage(format!("{flag}: {shown} {wrong}: {error}")).remedy(remedy)
    })
}

/// JSON of a flag, or of the file that it names with an `@` before; `example` is such a JSON, which can be used as it is.
pub fn json_or_file(flag: &str, given: &str, example: &str) -> Outcome<serde_json::Value> {
    let example = format!("for example {flag} '{example}', or {flag} @FILE with that in a file");
    // No JSON begins so.
    if let Some(path) = given.strip_prefix('@') {
        return json(flag, Path::new(path), "JSON", &example);
    }
    serde_json::from_str(given)
        .map_err(|error| Failure::usage(format!("{flag} is no JSON: {error}")).remedy(example))
}

/// The input of a run.
pub fn input(given: &str) -> Outcome<serde_json::Value> {
    json_or_file("--input", given, r#"{"text":"hello"}"#)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate_model::contracts::Needs;

    use super::*;

    /// Bad input: the option, the file and the remedy.
    #[test]
    fn what_is_wrong_with_a_file_names_flag_file_and_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(at("good.json"), r#"{"text":"hello"}"#).unwrap();
        std::fs::write(at("bad.json"), "{\"text\":").unwrap();
        std::fs::write(at("bytes"), b"\"\xff\"").unwrap();
        let good = input(&format!("@{}", at("good.json")));
        assert_eq!(good.unwrap(), json!({"text": "hello"}));
        for (file, wrong, remedy) in [
            ("missing", "cannot read", "that is there"),
            ("", "cannot read", "not a directory"),
            ("bad.json", "is no JSON", "--input @FILE"),
            ("bytes", "is no JSON", "--input @FILE"),
        ] {
            let failure = input(&format!("@{}", at(file))).unwrap_err();
            let said = failure.messages.join("\n");
            assert!(
                said.starts_with("--input: ") && said.contains(wrong),
                "{said}"
            );
            assert!(said.contains(&at(file)), "{said}");
            let told = failure.remedy.unwrap();
            assert!(told.contains(remedy), "{told}");
        }
        std::fs::write(at("listed"), r#"{"tools":[["web/search","*"]]}"#).unwrap();
        let listed = json::<Needs>("--body", Path::new(&at("listed")), "needs", "").unwrap_err();
        assert!(
            listed.messages[0].contains("tools[0]: expected an object, found a list"),
            "{listed:?}"
        );
        assert_eq!(input("7").unwrap(), json!(7));
        let failure = input("{").unwrap_err();
        assert!(failure.messages[0].starts_with("--input is no JSON"));
    }
}
