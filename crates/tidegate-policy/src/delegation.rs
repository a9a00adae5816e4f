//! What a child needs where its parent needs something (R9.3): data that came with the parent's labels stays where the
//! parent's may go.
//!
//! A child asks for its own tools and runtimes; labels, regions and the sandbox floor of its parent hold for it too. A
//! child that asks for a region that its parent may not go to is refused, as nothing else of it would be met.

use tidegate_model::contracts::{Needs, Region};

/// A region that the parent may not go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignRegion(pub Region);

/// The needs of a child, given what it asks for and what its parent needs.
pub fn of_child(mut asked: Needs, parent: &Needs) -> Result<Needs, ForeignRegion> {
    asked
        .input_labels
        .extend(parent.input_labels.iter().cloned());
    asked.sandbox = asked.sandbox.max(parent.sandbox);
    if asked.allowed_regions.is_empty() {
        asked.allowed_regions.clone_from(&parent.allowed_regions);
    } else if !parent.allowed_regions.is_empty()
        && let Some(foreign) = asked
            .allowed_regions
            .iter()
            .find(|region| !parent.allowed_regions.contains(region))
    {
        return Err(ForeignRegion(foreign.clone()));
    }
    Ok(asked.in_order())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn needs(written: Value) -> Needs {
        serde_json::from_value(written).unwrap()
    }

    /// R9.3: what holds for the parent's data holds for the child, whatever the child says.
    #[test]
    fn a_child_keeps_what_its_parent_is_bound_to() {
        let parent = needs(
            json!({"inputLabels": ["pii"], "allowedRegions": ["eu-1", "eu-2"], "sandbox": "container",
            "tools": [{"name": "web/search", "versions": "*"}]}),
        );
        let cases = [
            (
                json!({}),
                json!({"inputLabels": ["pii"], "allowedRegions": ["eu-1", "eu-2"], "sandbox": "container"}),
            ),
            (
                json!({"inputLabels": ["internal"], "allowedRegions": ["eu-2"], "sandbox": "process"}),
                json!({"inputLabels": ["internal", "pii"], "allowedRegions": ["eu-2"], "sandbox": "container"}),
            ),
            (
                json!({"sandbox": "vm"}),
                json!({"inputLabels": ["pii"], "allowedRegions": ["eu-1", "eu-2"], "sandbox": "vm"}),
            ),
        ];
        for (asked, given) in cases {
            assert_eq!(of_child(needs(asked), &parent), Ok(needs(given)));
        }
        let away = of_child(needs(json!({"allowedRegions": ["eu-1", "us-1"]})), &parent);
        assert_eq!(away, Err(ForeignRegion("us-1".parse().unwrap())));
        let free = needs(json!({"allowedRegions": ["us-1"]}));
        assert_eq!(of_child(free.clone(), &Needs::default()), Ok(free));
    }
}
