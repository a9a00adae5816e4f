//! The texts a person may read when the limiter refuses (R13.1), in English and Chinese.

use std::time::Duration;

/// The name shown to people unless the operator sets another.
pub const DEFAULT_BRAND: &str = "AIdaWork";

/// The language of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Locale {
    /// English.
    #[default]
    En,
    /// Simplified Chinese.
    ZhCn,
}

impl Locale {
    /// Reads an `Accept-Language` header: the known language with the highest weight, the first one on a tie, English
    /// where none is known.
    pub fn from_accept_language(header: &str) -> Self {
        let mut best = (0.0, Self::En);
        for entry in header.split(',') {
            let mut parts = entry.split(';');
            let tag = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
            let weight = parts
                .find_map(|part| part.trim().strip_prefix("q=").map(str::trim))
                .map_or(1.0, |q| q.parse::<f64>().unwrap_or(0.0));
            let locale = match tag.split('-').next() {
                Some("zh") => Self::ZhCn,
                Some("en") => Self::En,
                _ => continue,
            };
            if weight > best.0 {
                best = (weight, locale);
            }
        }
        best.1
    }
}

/// The text of `LLM_BUSY`.
pub fn llm_busy(locale: Locale, brand: &str) -> String {
    match locale {
        Locale::En => format!("{brand} is busy at the moment"),
        Locale::ZhCn => format!("{brand} 当前繁忙"),
    }
}

/// The text of `LLM_BUSY` with the time to come back.
pub fn llm_busy_until(locale: Locale, brand: &str, retry_after: Duration) -> String {
    let seconds = retry_after.as_secs_f64().ceil().max(1.0);
    match locale {
        Locale::En => format!(
            "{}; please try again in {seconds} s",
            llm_busy(locale, brand)
        ),
        Locale::ZhCn => format!("{}，请在 {seconds} 秒后重试", llm_busy(locale, brand)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R13.1
    #[test]
    fn busy_reads_as_the_catalogue_says() {
        assert_eq!(llm_busy(Locale::ZhCn, DEFAULT_BRAND), "AIdaWork 当前繁忙");
        assert_eq!(llm_busy(Locale::En, "Acme"), "Acme is busy at the moment");
        let text = llm_busy_until(Locale::ZhCn, "Acme", Duration::from_millis(2_100));
        assert_eq!(text, "Acme 当前繁忙，请在 3 秒后重试");
    }

    #[test]
    fn the_language_is_the_callers_first_known_choice() {
        for (header, expected) in [
            ("", Locale::En),
            ("zh-CN,zh;q=0.9,en;q=0.8", Locale::ZhCn),
            ("en-GB,zh;q=0.9", Locale::En),
            ("fr, zh;q=0.3, en;q=0.2", Locale::ZhCn),
            ("zh;q=0, en;q=0.1", Locale::En),
            ("ZH-hans", Locale::ZhCn),
            ("de;q=x", Locale::En),
        ] {
            assert_eq!(Locale::from_accept_language(header), expected, "{header}");
        }
    }
}
