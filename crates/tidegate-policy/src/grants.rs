//! What a run gets of priority and service class (R2.4): granted by policy, lowered by its caller.
//!
//! The grant comes from the API key that the run came with, else from the run's kind. Nothing in a request raises it.

use tidegate_model::run::{PrioritySource, RunKind, ServiceClass};

/// The priority of a run, given what its key grants and what its caller asks for; what is granted, where that is less
/// than what is asked for.
pub fn priority(granted: Option<i16>, asked: Option<i16>) -> Result<(i16, PrioritySource), i16> {
    let (most, source) = match granted {
        Some(priority) => (priority, PrioritySource::Key),
        None => (0, PrioritySource::Default),
    };
    match asked {
        Some(asked) if asked > most => Err(most),
        Some(asked) if asked < most => Ok((asked, PrioritySource::Caller)),
        Some(_) | None => Ok((most, source)),
    }
}

/// The service class of a run likewise; what is granted, where more protection than that is asked for.
pub fn service_class(
    kind: RunKind,
    granted: Option<ServiceClass>,
    asked: Option<ServiceClass>,
) -> Result<ServiceClass, ServiceClass> {
    let most = granted.unwrap_or(kind.default_service_class());
    match asked {
        // The first class is the most protected one.
        Some(asked) if asked < most => Err(most),
        Some(asked) => Ok(asked),
        None => Ok(most),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R2.4: a caller can only lower what it is granted, whatever that is.
    #[test]
    fn nothing_that_is_asked_for_raises_what_is_granted() {
        for granted in [None, Some(-5), Some(0), Some(7)] {
            let most = granted.unwrap_or(0);
            for asked in -10..=10 {
                match priority(granted, Some(asked)) {
                    Ok((given, source)) => {
                        assert!(given == asked && asked <= most);
                        assert_eq!(source == PrioritySource::Caller, asked < most);
                    }
                    Err(told) => assert!(told == most && asked > most),
                }
            }
        }
        assert_eq!(priority(None, None), Ok((0, PrioritySource::Default)));
        assert_eq!(priority(Some(7), None), Ok((7, PrioritySource::Key)));
        for kind in RunKind::ALL {
            let granted = ServiceClass::ALL.iter().copied().map(Some);
            for granted in granted.chain([None]) {
                let most = granted.unwrap_or(kind.default_service_class());
                assert_eq!(service_class(*kind, granted, None), Ok(most));
                for asked in ServiceClass::ALL {
                    let given = service_class(*kind, granted, Some(*asked));
                    let expected = if *asked >= most {
                        Ok(*asked)
                    } else {
                        Err(most)
                    };
                    assert_eq!(given, expected);
                }
            }
        }
    }
}
