//! Flags of every list.

use clap::Args;
use tidegate_model::api::{Page, PageQuery};

use crate::{output::Output, shell};

/// Which part of a list.
#[derive(Debug, Clone, Default, Args)]
pub struct PageFlags {
    /// At most this many (1 to 200)
    #[arg(long, value_name = "N")]
    pub limit: Option<u32>,
    /// Go on where the page before ended
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
}

impl PageFlags {
    /// As the API wants it.
    pub fn query(&self) -> PageQuery {
        PageQuery {
            limit: self.limit,
            cursor: self.cursor.clone(),
        }
    }
}

/// Says how to read on.
pub fn hint<T>(output: Output, page: &Page<T>) {
    if let Some(cursor) = &page.next_cursor {
        output.note(&format!("more with --cursor {}", shell::word(cursor)));
    }
}
