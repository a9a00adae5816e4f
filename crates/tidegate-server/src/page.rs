//! Pages of lists that the engine gives whole, since they are short: the catalogue, pools, instances.

use tidegate_model::{
    api::{Page, PageQuery},
    limits::{PAGE_DEFAULT, PAGE_MAX},
};

use crate::problem::Failure;

/// The page of `items` in the order of their names; the cursor is the last name of the page before.
pub fn cut<T>(
    items: Vec<T>,
    query: &PageQuery,
    name: impl Fn(&T) -> String,
) -> Result<Page<T>, Failure> {
    let limit = query.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Failure::invalid("limit", format!("1 to {PAGE_MAX}")));
    }
    let size = usize::try_from(limit).unwrap_or(usize::MAX);
    let after = query.cursor.as_deref().unwrap_or_default();
    let mut items: Vec<T> = items
        .into_iter()
        .filter(|item| name(item).as_str() > after)
        .collect();
    let more = items.len() > size;
    items.sort_by_cached_key(&name);
    items.truncate(size);
    let next_cursor = items.last().filter(|_| more).map(name);
    Ok(Page { items, next_cursor })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_join_without_gap_or_overlap() {
        let all: Vec<String> = ["a", "b", "c", "d", "e"].map(String::from).to_vec();
        let mut read = Vec::new();
        let mut query = PageQuery {
            limit: Some(2),
            cursor: None,
        };
        loop {
            let page = cut(all.clone(), &query, String::clone).unwrap();
            read.extend(page.items);
            query.cursor = page.next_cursor;
            if query.cursor.is_none() {
                break;
            }
        }
        assert_eq!(read, all);
        for limit in [0, PAGE_MAX + 1] {
            let query = PageQuery {
                limit: Some(limit),
                cursor: None,
            };
            assert!(cut(all.clone(), &query, String::clone).is_err());
        }
    }
}
