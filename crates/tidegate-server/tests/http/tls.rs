//! R1.10: TLS on the listener; a wrong certificate is refused on either side.

use std::net::SocketAddr;

use reqwest::Certificate;
use tidegate_engine::settings::Settings;
use tidegate_server::TlsError;
use tidegate_testkit::tls::{Authority, CertificateFiles};

use crate::rig::{PATIENCE, Rig, install_crypto};

fn with(files: &CertificateFiles) -> impl FnOnce(&mut Settings) + use<> {
    let (cert, key) = (files.certificate.clone(), files.key.clone());
    move |settings| {
        settings.tls_cert = Some(cert);
        settings.tls_key = Some(key);
    }
}

fn trusting(authority: &Authority) -> reqwest::Client {
    install_crypto();
    let root = Certificate::from_pem(authority.pem().as_bytes()).unwrap();
    let builder = reqwest::Client::builder().timeout(PATIENCE);
    builder.tls_certs_only([root]).build().unwrap()
}

async fn livez(client: &reqwest::Client, address: SocketAddr) -> reqwest::Result<String> {
    client
        .get(format!("https://{address}/livez"))
        .send()
        .await?
        .text()
        .await
}

/// R1.10: the listener speaks TLS only, to those who trust its authority.
#[tokio::test]
async fn a_client_that_trusts_the_authority_is_served_and_any_other_refuses() {
    let ours = Authority::new("ours");
    let rig = Rig::with(with(&ours.localhost().to_files())).await;
    assert_eq!(livez(&trusting(&ours), rig.address).await.unwrap(), "ok\n");
    let wrong = livez(&trusting(&Authority::new("wrong")), rig.address).await;
    assert!(wrong.unwrap_err().is_connect());
    let plain = rig.request("GET", "/livez").send().await;
    assert!(plain.is_err(), "no plain text on a TLS listener");
}

/// R1.10: a wrong certificate is refused.
#[tokio::test]
async fn an_expired_certificate_and_one_for_another_name_are_refused() {
    let ours = Authority::new("ours");
    for files in [
        ours.expired().to_files(),
        ours.server(&["example.test"]).to_files(),
    ] {
        let rig = Rig::with(with(&files)).await;
        let refused = livez(&trusting(&ours), rig.address).await;
        assert!(refused.unwrap_err().is_connect());
    }
}

#[tokio::test]
async fn http_2_is_spoken_over_tls() {
    let ours = Authority::new("ours");
    let rig = Rig::with(with(&ours.localhost().to_files())).await;
    let url = format!("https://{}/livez", rig.address);
    let response = trusting(&ours).get(url).send().await.unwrap();
    assert_eq!(response.version(), http::Version::HTTP_2);
}

/// A start with files that cannot be used names the variable.
#[tokio::test]
async fn unusable_files_are_an_error_of_the_start() {
    let ours = Authority::new("ours");
    let one = ours.localhost().to_files();
    let other = ours.localhost().to_files();
    let absent = one.certificate.with_file_name("absent.crt");
    let rig = Rig::new().await;
    let cases = [
        (absent, one.key.clone(), "TIDEGATE_TLS_CERT"),
        (one.key.clone(), one.key.clone(), "TIDEGATE_TLS_CERT"),
        (
            one.certificate.clone(),
            one.certificate.clone(),
            "TIDEGATE_TLS_KEY",
        ),
        (
            one.certificate,
            other.key,
            "TIDEGATE_TLS_CERT and TIDEGATE_TLS_KEY",
        ),
    ];
    for (cert, key, named) in cases {
        let error: TlsError = tidegate_server::listen::load_tls(&cert, &key)
            .map(drop)
            .unwrap_err();
        assert!(error.to_string().contains(named), "{error}");
    }
    drop(rig);
}
