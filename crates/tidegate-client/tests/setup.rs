//! What trying again cannot cure is said at once, with its cause: certificates and schemes.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

use std::{net::SocketAddr, time::Duration};

use axum::{Router, routing::get};
use axum_server::{Handle, tls_rustls::RustlsConfig};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::json;
use tidegate_client::{Client, Error, SetupCause};
use tidegate_model::KeyId;

/// Far longer than any of these tests takes: a call that is repeated runs into it.
const DEADLINE: Duration = Duration::from_secs(20);

struct Certificate {
    pem: String,
    key: KeyPair,
}

fn params(name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn self_signed(is_ca: IsCa) -> Certificate {
    let mut params = params("self", &["127.0.0.1"]);
    params.is_ca = is_ca;
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    Certificate { pem, key }
}

/// An authority and what it signs.
fn signed(authority: &str, params: &CertificateParams) -> (String, Certificate) {
    let mut own = self::params(authority, &[]);
    own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let own_key = KeyPair::generate().unwrap();
    let trusted = own.self_signed(&own_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let issuer = Issuer::new(own, own_key);
    let pem = params.signed_by(&key, &issuer).unwrap().pem();
    (trusted, Certificate { pem, key })
}

fn router() -> Router {
    let me = json!({ "keyId": KeyId::new(), "role": "member", "scopes": [] }).to_string();
    Router::new().route("/v1/me", get(move || async move { me }))
}

async fn serve(tls: Option<&Certificate>) -> SocketAddr {
    let _raced = rustls::crypto::ring::default_provider().install_default();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let handle = Handle::new();
    let service = router().into_make_service();
    if let Some(tls) = tls {
        let key = tls.key.serialize_pem().into_bytes();
        let config = RustlsConfig::from_pem(tls.pem.clone().into_bytes(), key);
        let config = config.await.unwrap();
        let server = axum_server::from_tcp_rustls(listener, config).unwrap();
        tokio::spawn(server.handle(handle.clone()).serve(service));
    } else {
        let server = axum_server::from_tcp(listener).unwrap();
        tokio::spawn(server.handle(handle.clone()).serve(service));
    }
    handle.listening().await.unwrap()
}

async fn ask(url: &str, trusted: Option<&str>) -> Result<(), Error> {
    let mut builder = Client::builder(url).deadline(DEADLINE);
    if let Some(pem) = trusted {
        builder = builder.ca_pem(pem);
    }
    builder.build().unwrap().me().await.map(|_| ())
}

#[track_caller]
fn assert_cause(answer: Result<(), Error>, expected: SetupCause) {
    let error = answer.expect_err("no connection can come about");
    assert!(!error.is_retryable(), "{error}");
    match &error {
        Error::Setup { cause, .. } => assert_eq!(*cause, expected, "{error}"),
        other => panic!("{expected:?}: {other:?}"),
    }
    assert!(error.to_string().contains(expected.remedy()), "{error}");
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_not_tried_again() {
    let good = params("server", &["127.0.0.1"]);
    let (trusted, certificate) = signed("ours", &good);
    let (other, _) = signed("other", &good);
    let address = serve(Some(&certificate)).await;
    let url = format!("https://{address}");
    ask(&url, Some(&trusted)).await.unwrap();
    assert_cause(ask(&url, Some(&other)).await, SetupCause::UnknownAuthority);
    assert_cause(ask(&url, None).await, SetupCause::UnknownAuthority);
    // "localhost" is a name that this certificate does not carry.
    let named = format!("https://localhost:{}", address.port());
    assert_cause(ask(&named, Some(&trusted)).await, SetupCause::OtherName);

    let mut old = good;
    old.not_before = rcgen::date_time_ymd(2001, 1, 1);
    old.not_after = rcgen::date_time_ymd(2002, 1, 1);
    let (trusted, certificate) = signed("ours", &old);
    let url = format!("https://{}", serve(Some(&certificate)).await);
    assert_cause(ask(&url, Some(&trusted)).await, SetupCause::OutOfTime);
}

/// What a plain `openssl req -x509` makes is marked as an authority, and is refused as a server's; without the mark a
/// self-signed certificate is trusted like an authority.
#[tokio::test]
async fn a_self_signed_certificate_must_not_be_an_authority() {
    let marked = self_signed(IsCa::Ca(BasicConstraints::Unconstrained));
    let url = format!("https://{}", serve(Some(&marked)).await);
    let answer = ask(&url, Some(&marked.pem)).await;
    assert_cause(answer, SetupCause::AuthorityAsServer);

    let plain = self_signed(IsCa::ExplicitNoCa);
    let url = format!("https://{}", serve(Some(&plain)).await);
    ask(&url, Some(&plain.pem)).await.unwrap();
}

#[tokio::test]
async fn the_wrong_scheme_is_not_tried_again() {
    let plain = serve(None).await;
    let answer = ask(&format!("https://{plain}"), None).await;
    assert_cause(answer, SetupCause::NoTls);

    let (_, certificate) = signed("ours", &params("server", &["127.0.0.1"]));
    let tls = serve(Some(&certificate)).await;
    let answer = ask(&format!("http://{tls}"), None).await;
    assert_cause(answer, SetupCause::NoHttp);
}

/// A server that is not there yet may come: refused connections are tried again until the deadline.
#[tokio::test]
async fn a_refused_connection_is_tried_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = Client::builder(&url).deadline(Duration::from_secs(2));
    let error = client.build().unwrap().me().await.unwrap_err();
    match error {
        Error::DeadlineExceeded { attempts, last, .. } => {
            assert!(attempts > 1, "{attempts}");
            assert!(
                matches!(last.as_deref(), Some(Error::Transport { .. })),
                "{last:?}"
            );
        }
        other => panic!("{other:?}"),
    }
}
