use std::path::Path;

use tidegate_store::{
    ConnectOptions, connect,
    migrate::{Applicant, MigrateError, check, migrate},
};
use tidegate_testkit::{Authority, Handshake, TestDb, TlsFront};

/// R1.10: TLS to PostgreSQL with the right authority works; a wrong, expired or misnamed certificate is refused at once,
/// with what to do.
#[tokio::test]
async fn a_wrong_certificate_of_the_database_is_refused() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let db = TestDb::new().await;
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let front =
        async |certificate| TlsFront::start(db.target(), &certificate, Handshake::Postgres).await;
    let pool = |front: &TlsFront, authority: &Path| {
        let url = db.url_at(front.address());
        let url = format!(
            "{url}?sslmode=verify-full&sslrootcert={}",
            authority.display()
        );
        connect(&ConnectOptions::new(url)).unwrap()
    };
    let applicant = Applicant {
        by: "test".to_owned(),
        server_version: "0.1.0".to_owned(),
    };
    let good = ours.localhost();
    let authority = good.to_files().authority;
    let right = front(good).await;
    migrate(&pool(&right, &authority), &applicant)
        .await
        .unwrap();
    check(&pool(&right, &authority), "0.1.0").await.unwrap();
    for wrong in [
        theirs.localhost(),
        ours.expired(),
        ours.server(&["elsewhere.example"]),
    ] {
        let wrong = front(wrong).await;
        for error in [
            migrate(&pool(&wrong, &authority), &applicant)
                .await
                .unwrap_err(),
            check(&pool(&wrong, &authority), "0.1.0").await.unwrap_err(),
        ] {
            assert!(matches!(error, MigrateError::Tls { .. }), "{error:?}");
            let told = error.to_string();
            assert!(
                told.contains("certificate") && told.contains("sslrootcert"),
                "{told}"
            );
        }
    }
}
