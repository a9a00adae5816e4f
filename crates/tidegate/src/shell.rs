//! Words of commands that are printed to be pasted into a shell.

use std::borrow::Cow;

/// A word as a POSIX shell takes it: in quotes where it would read something else out of it.
pub fn word(text: &str) -> Cow<'_, str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"%+,-./:=@_".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_out_of_a_shell_as_they_went_in() {
        for text in [
            "/srv/tidegate/profile.toml",
            "/srv/ada lovelace/it's \"here\"",
            "$HOME/`id`;#&|*?~!\\",
            "~/profile",
            "",
            "ü=1",
            "https://api.example/v1?a=1&b=2",
        ] {
            let script = format!("printf %s {}", word(text));
            let shell = std::process::Command::new("sh")
                .args(["-c", &script])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&shell.stdout), text, "{script}");
        }
        assert_eq!(word("/srv/profile.toml"), "/srv/profile.toml");
    }
}
