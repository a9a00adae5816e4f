//! Ids in paths.

use std::{fmt::Display, str::FromStr};

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use tidegate_model::{Code, words};

use crate::problem::Failure;

/// The parameters of a path, in their order, each read as its id.
#[derive(Debug, Clone, Copy)]
pub struct PathId<T>(pub T);

/// What a path can hold.
pub trait FromParams: Sized {
    /// Reads `(name, value)` pairs.
    fn from_params(params: &[(&str, &str)]) -> Result<Self, Failure>;
}

fn one<T>(params: &[(&str, &str)], index: usize) -> Result<T, Failure>
where
    T: FromStr<Err: Display>,
{
    let Some((name, text)) = params.get(index) else {
        return Err(Failure::new(Code::Internal, "the route lacks a parameter"));
    };
    text.parse()
        .map_err(|error: T::Err| Failure::invalid(*name, words::plain(&error.to_string())))
}

macro_rules! single {
    ($($id:ty),+) => {$(
        impl FromParams for $id {
            fn from_params(params: &[(&str, &str)]) -> Result<Self, Failure> { one(params, 0) }
        }
    )+};
}

single!(
    tidegate_model::RunId,
    tidegate_model::ConversationId,
    tidegate_model::KeyId,
    tidegate_model::TenantId,
    tidegate_model::PoolId,
    tidegate_model::ids::CatalogName,
    tidegate_model::ids::ScheduleName,
    tidegate_model::AdmissionId,
    tidegate_model::contracts::ResourceName
);

impl FromParams for (tidegate_model::PoolId, i64) {
    fn from_params(params: &[(&str, &str)]) -> Result<Self, Failure> {
        Ok((one(params, 0)?, one(params, 1)?))
    }
}

impl FromParams for (tidegate_model::RunId, tidegate_model::effect::CallId) {
    fn from_params(params: &[(&str, &str)]) -> Result<Self, Failure> {
        Ok((one(params, 0)?, one(params, 1)?))
    }
}

impl<S: Send + Sync, T: FromParams> FromRequestParts<S> for PathId<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let raw = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|_| Failure::invalid("path", "the path is not valid UTF-8"))?;
        let params: Vec<(&str, &str)> = raw.iter().collect();
        T::from_params(&params).map(Self)
    }
}
