//! The log of config revisions, and since when each is in force everywhere (R17.2).

use tidegate_model::api::{Page, PageQuery, RevisionView};

use crate::{Engine, Error, Principal, checks};

/// A page, newest first.
pub async fn revisions(
    engine: &Engine,
    principal: &Principal,
    query: &PageQuery,
) -> Result<Page<RevisionView>, Error> {
    principal.require_operator()?;
    let size = checks::page_size(query)?;
    let before = checks::cursor(query)?;
    let rows = engine.store().list_revisions(before, size + 1).await?;
    Ok(checks::page(rows, size, |row| row.revision.to_string()))
}
