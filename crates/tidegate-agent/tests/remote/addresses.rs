//! The address that is called is one that was checked.

use std::path::PathBuf;

use axum::{Router, response::IntoResponse, routing::any};
use axum_server::tls_rustls::RustlsConfig;
use rcgen::{CertificateParams, KeyPair};
use tidegate_agent::tools::ServerState;
use tidegate_model::{Code, api::SideEffectLevel};

use crate::{
    api::api_spec,
    rig::{INTERNAL, Mcp, Names, PUBLIC, Server, canary, host, mcp_spec, network, redirect},
    support::{acme, until},
};

/// O-27: a name whose address changes between two questions, or that has a public and a private address, leads to no
/// connection that was not checked: neither of an HTTP tool nor of an MCP server.
#[tokio::test]
async fn names_that_lead_inside_reach_nothing() {
    let internal = canary().await;
    let port = internal.address.port();
    let both: &[&[&str]] = &[&[PUBLIC, INTERNAL]];
    let turns: &[&[&str]] = &[&[PUBLIC], &[INTERNAL], &[PUBLIC], &[INTERNAL]];
    for answers in [
        both,
        turns,
        &[&[INTERNAL]],
        &[&["::ffff:127.0.0.2"]],
        &[&[]],
    ] {
        let names = || network(Names::default().with("tools.example", answers));
        let url = format!("http://tools.example:{port}");
        let tools = host(names(), vec![api_spec(&url)]);
        let offer = tools.offer(&acme(), SideEffectLevel::Read).await;
        for _ in 0..4 {
            let answer = tools.call(&offer, "shop__get", r#"{"id": 1}"#).await;
            assert_eq!(
                answer.code,
                Some(Code::ToolUnavailable),
                "{answers:?}: {}",
                answer.text
            );
        }
        tools.shutdown().await;
        let tools = host(names(), vec![mcp_spec(&format!("{url}/mcp"), &["read"])]);
        until("it is down", || {
            matches!(tools.view()[0].state, ServerState::Down { .. })
        })
        .await;
        tools.shutdown().await;
    }
    assert_eq!(internal.seen().len(), 0, "{:?}", internal.seen());
}

/// O-27: every way to write an internal address is refused, of an HTTP tool and of an MCP server, with a reason.
#[tokio::test]
async fn written_addresses_reach_nothing() {
    let internal = canary().await;
    let port = internal.address.port();
    for address in [
        "127.0.0.2",
        "2130706434",
        "0x7f000002",
        "0177.0.0.2",
        "127.2",
        "[::ffff:127.0.0.2]",
    ] {
        let url = format!("http://{address}:{port}");
        let names = network(Names::default());
        let tools = host(names, vec![api_spec(&url), mcp_spec(&url, &["read"])]);
        for server in 0..2 {
            until("it is down", || {
                matches!(tools.view()[server].state, ServerState::Down { .. })
            })
            .await;
            let ServerState::Down { reason, .. } = tools.view().remove(server).state else {
                continue;
            };
            assert!(
                reason.contains("TIDEGATE_TOOL_NETWORKS"),
                "{address}: {reason}"
            );
        }
        tools.shutdown().await;
    }
    assert_eq!(internal.seen().len(), 0);
}

/// O-27: an MCP server that redirects within its origin is followed there; to another host it is not, whoever that is.
#[tokio::test]
async fn an_mcp_server_does_not_redirect_elsewhere() {
    let internal = canary().await;
    let (_, other) = Mcp::start(PUBLIC).await;
    for target in [internal.url("/mcp"), other.url("/mcp")] {
        let shown = target.clone();
        let server = Server::start(PUBLIC, move |_| redirect(307, &shown)).await;
        let tools = host(
            network(Names::default()),
            vec![mcp_spec(&server.url("/mcp"), &["read"])],
        );
        until("it is down", || {
            matches!(tools.view()[0].state, ServerState::Down { .. })
        })
        .await;
        let ServerState::Down { reason, .. } = tools.view().remove(0).state else {
            continue;
        };
        assert!(
            reason.contains("redirects to another place"),
            "{target}: {reason}"
        );
        tools.shutdown().await;
    }
    assert_eq!((internal.seen().len(), other.seen().len()), (0, 0));
}

/// O-27: a proper host works, its certificate is checked against its name, and a wrong one is refused.
#[tokio::test]
async fn a_proper_host_works_with_tls_by_its_name() {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["tools.example".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file: PathBuf = directory.path().join("ca.pem");
    std::fs::write(&file, certificate.pem()).unwrap();
    let tls = RustlsConfig::from_pem(
        certificate.pem().into_bytes(),
        key.serialize_pem().into_bytes(),
    );
    let listener = std::net::TcpListener::bind((PUBLIC, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = Router::new().fallback(any(|| async { "public".into_response() }));
    let server = axum_server::from_tcp_rustls(listener, tls.await.unwrap()).unwrap();
    tokio::spawn(server.serve(router.into_make_service()));
    for (name, works) in [("tools.example", true), ("wrong.example", false)] {
        let names = Names::default().with(name, &[&[INTERNAL, PUBLIC]]);
        let tools = host(
            network(names).trust(&file).unwrap(),
            vec![api_spec(&format!("https://{name}:{port}"))],
        );
        let offer = tools.offer(&acme(), SideEffectLevel::Read).await;
        let answer = tools.call(&offer, "shop__get", r#"{"id": 1}"#).await;
        assert_eq!(answer.code.is_none(), works, "{name}: {}", answer.text);
        tools.shutdown().await;
    }
}
