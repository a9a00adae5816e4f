//! Providers behind TLS with an authority of the operator's own.

use std::{net::SocketAddr, path::PathBuf};

use axum_server::tls_rustls::RustlsConfig;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tidegate_llm::FaultKind;
use tidegate_mock_provider::{Scenario, router};

use crate::support::{catalogue, fault, rig};

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    Authority {
        issuer: Issuer::new(params, key),
        pem,
    }
}

async fn serve_with(authority: &Authority) -> SocketAddr {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority.issuer).unwrap().pem();
    let tls = RustlsConfig::from_pem(certificate.into_bytes(), key.serialize_pem().into_bytes())
        .await
        .unwrap();
    let scenario =
        Scenario::parse("[[rule]]\nname = \"a\"\nreply = { text = \"over TLS\" }\n").unwrap();
    let (app, _stats) = router(scenario);
    let handle = axum_server::Handle::new();
    let server =
        axum_server::bind_rustls(SocketAddr::from(([127, 0, 0, 1], 0)), tls).handle(handle.clone());
    tokio::spawn(server.serve(app.into_make_service()));
    handle.listening().await.unwrap()
}

fn file(dir: &tempfile::TempDir, name: &str, pem: &str) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, pem).unwrap();
    path
}

/// R1.10: a provider's certificate is checked against the system's authorities and the configured file.
#[tokio::test]
async fn only_a_certificate_of_a_trusted_authority_is_accepted() {
    let rig = rig(
        "[[rule]]\nname = \"a\"\nreply = { text = \"plain\" }\n",
        |_| (),
    )
    .await;
    let (right, wrong) = (authority(), authority());
    let address = serve_with(&right).await;
    let dir = tempfile::tempdir().unwrap();
    let use_file = |ca_file: Option<PathBuf>| {
        let config = rig.config(|config| {
            config.base_url = format!("https://localhost:{}/v1", address.port());
            config.ca_file = ca_file;
        });
        assert_eq!(rig.providers.replace(catalogue(config)), vec![]);
    };
    use_file(Some(file(&dir, "right.pem", &right.pem)));
    assert_eq!(rig.ask("hi").await.unwrap().text, "over TLS");
    for ca_file in [None, Some(file(&dir, "wrong.pem", &wrong.pem))] {
        use_file(ca_file);
        let fault = fault(rig.ask("hi").await);
        assert_eq!(fault.kind, FaultKind::Unreachable);
        assert!(
            fault.message.to_lowercase().contains("certificate"),
            "{fault}"
        );
    }
    let empty = rig.config(|config| config.ca_file = Some(file(&dir, "empty.pem", "")));
    let unusable = rig.providers.replace(catalogue(empty));
    assert!(
        unusable[0].reason.contains("no PEM certificate"),
        "{unusable:?}"
    );
}
