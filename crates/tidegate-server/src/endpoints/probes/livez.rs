//! `GET /livez`.

/// Whether the process answers. Never looks at the database: an instance is not restarted because PostgreSQL is away.
#[utoipa::path(
    get,
    path = "/livez",
    tag = "probes",
    responses((status = 200, description = "The process answers.", body = String, content_type = "text/plain"))
)]
pub async fn livez() -> &'static str {
    "ok\n"
}
