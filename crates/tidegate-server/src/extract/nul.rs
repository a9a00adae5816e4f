//! NUL characters. JSON may carry them, PostgreSQL's texts may not: refused here by path, not by a failing statement.

use serde_json::Value;

use crate::problem::Failure;

/// Refuses a body with a NUL in any text or name. Costs a search over the bytes unless an escape is found.
pub(super) fn refuse(bytes: &[u8]) -> Result<(), Failure> {
    let escaped = bytes.windows(6).any(|window| window == b"\\u0000");
    if !escaped {
        return Ok(());
    }
    // The escape may itself be escaped (`\\u0000` is a backslash and five characters), so the text is looked at.
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else {
        return Ok(());
    };
    let mut path = String::new();
    if holds(&value, &mut path) {
        let detail = "texts may not contain the NUL character (\\u0000); remove it";
        let field = if path.is_empty() {
            "$".to_owned()
        } else {
            path
        };
        return Err(Failure::invalid(field, detail));
    }
    Ok(())
}

/// Finds the first NUL and leaves its path.
fn holds(value: &Value, path: &mut String) -> bool {
    let length = path.len();
    match value {
        Value::String(text) => return text.contains('\0'),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push('[');
                path.push_str(&index.to_string());
                path.push(']');
                if holds(item, path) {
                    return true;
                }
                path.truncate(length);
            }
        }
        Value::Object(fields) => {
            for (name, item) in fields {
                if name.contains('\0') {
                    return true;
                }
                if length > 0 {
                    path.push('.');
                }
                path.push_str(name);
                if holds(item, path) {
                    return true;
                }
                path.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escaped_backslash_is_no_nul() {
        assert!(refuse(br#"{"a":"\\u0000"}"#).is_ok());
        assert!(refuse(br#"{"a":"\u0000"}"#).is_err());
        assert!(refuse(br#"{"\u0000":1}"#).is_err());
    }
}
