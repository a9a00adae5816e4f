//! Medians, ratios, tables.

/// The middle one; of two middle ones the mean.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values
        .iter()
        .copied()
        .filter(|value| value.is_finite())
        .collect();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(*sorted.get(sorted.len() / 2 - 1)?, upper))
}

/// The value below which this share of all lies.
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index within the slice"
    )]
    let index = ((sorted.len().checked_sub(1)? as f64) * share) as usize;
    sorted.get(index).copied()
}

/// Shown with as many digits as it is worth.
pub fn shown(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) if value.abs() >= 0.1 => format!("{value:.2}"),
        Some(value) => format!("{value:.4}"),
    }
}

/// Smallest and largest.
pub fn range(values: &[f64]) -> String {
    let low = values.iter().copied().reduce(f64::min);
    let high = values.iter().copied().reduce(f64::max);
    format!("{}..{}", shown(low), shown(high))
}

/// Prints a table in Markdown, so that it can stand in a document as it is.
pub fn print_table(heading: &str, columns: &[&str], rows: &[Vec<String>]) {
    println!("\n{heading}\n");
    println!("| {} |", columns.join(" | "));
    println!("|{}", "---|".repeat(columns.len()));
    for row in rows {
        println!("| {} |", row.join(" | "));
    }
    println!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(&sorted, 0.5), Some(50.0));
        assert_eq!(quantile(&sorted, 0.99), Some(99.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
