//! quinn, and h3 over it, as a client or server.
//!
//!   quic server CERT KEY HOST          echoes streams; prints its port
//!   quic client PORT BYTES N HOST      N connections of one stream of BYTES bytes each; prints "ok"
//!   h3 server CERT KEY HOST            echoes contents; prints its port
//!   h3 client PORT N HOST              N requests of each kind, some side by side; prints "ok"

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use bytes::{Buf, Bytes};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

mod trust;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    rustls::crypto::ring::default_provider().install_default().map_err(|_| anyhow!("a provider is installed"))?;
    match args[..] {
        ["quic", "server", cert, key, host] => echo_server(server(cert, key, host, b"echo")?).await,
        ["quic", "client", port, size, n, host] => {
            echo_client(client(b"echo")?, address(host, port)?, size.parse()?, n.parse()?).await
        }
        ["h3", "server", cert, key, host] => h3_server(server(cert, key, host, b"h3")?).await,
        ["h3", "client", port, n, host] => h3_client(client(b"h3")?, address(host, port)?, n.parse()?).await,
        _ => Err(anyhow!("usage: quic|h3 server CERT KEY HOST, quic client PORT BYTES N HOST, h3 client PORT N HOST")),
    }
}

fn address(host: &str, port: &str) -> Result<SocketAddr> {
    Ok(SocketAddr::new(host.parse()?, port.parse()?))
}

/// Returns an endpoint that listens, and prints its port.
fn server(cert: &str, key: &str, host: &str, alpn: &[u8]) -> Result<quinn::Endpoint> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(cert)?.collect::<Result<_, _>>()?;
    let mut tls = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    tls.alpn_protocols = vec![alpn.to_vec()];
    let config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    let endpoint = quinn::Endpoint::server(config, address(host, "0")?)?;
    println!("{}", endpoint.local_addr()?.port());
    Ok(endpoint)
}

fn client(alpn: &[u8]) -> Result<quinn::Endpoint> {
    let mut tls = rustls::ClientConfig::builder()
        .dangerous() // the certificate has no issuer
        .with_custom_certificate_verifier(trust::Anyone::new())
        .with_no_client_auth();
    tls.alpn_protocols = vec![alpn.to_vec()];
    let mut endpoint = quinn::Endpoint::client(address("0.0.0.0", "0")?)?;
    endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?)));
    Ok(endpoint)
}

async fn echo_server(endpoint: quinn::Endpoint) -> Result<()> {
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            let conn = incoming.await?;
            loop {
                let (mut send, mut recv) = conn.accept_bi().await?;
                tokio::spawn(async move {
                    tokio::io::copy(&mut recv, &mut send).await?;
                    send.finish()?;
                    anyhow::Ok(())
                });
            }
            #[allow(unreachable_code)]
            anyhow::Ok(())
        });
    }
    Ok(())
}

async fn echo_client(endpoint: quinn::Endpoint, to: SocketAddr, size: usize, n: usize) -> Result<()> {
    for i in 0..n {
        let conn = endpoint.connect(to, "b")?.await?;
        let (mut send, mut recv) = conn.open_bi().await?;
        let data: Vec<u8> = (0..size).map(|k| (k * (i + 7) >> 3) as u8).collect();
        let sending = async {
            send.write_all(&data).await?;
            send.finish()?;
            anyhow::Ok(())
        };
        let (sent, got) = tokio::join!(sending, recv.read_to_end(size + 1));
        sent?;
        let got = got?;
        ensure!(got == data, "{} bytes of {size} come back", got.len());
        conn.close(0u32.into(), b"");
    }
    endpoint.wait_idle().await;
    println!("ok");
    Ok(())
}

async fn h3_server(endpoint: quinn::Endpoint) -> Result<()> {
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            let conn = h3_quinn::Connection::new(incoming.await?);
            let mut conn: h3::server::Connection<_, Bytes> = h3::server::Connection::new(conn).await?;
            while let Some(request) = conn.accept().await? {
                tokio::spawn(async move {
                    let (request, mut stream) = request.resolve_request().await?;
                    let mut content = Vec::new();
                    while let Some(mut part) = stream.recv_data().await? {
                        content.extend_from_slice(&part.copy_to_bytes(part.remaining()));
                    }
                    let cookies: Vec<&[u8]> = request.headers().get_all("cookie").iter().map(|v| v.as_bytes()).collect();
                    let wrong = request.uri().path() == "/cookie" && cookies.join(&b"; "[..]) != b"a=1; b=2"; // RFC 9114 4.2.1
                    let status = if wrong { 500 } else { 200 };
                    let response = http::Response::builder().status(status).header("x-method", request.method().as_str()).body(())?;
                    stream.send_response(response).await?;
                    stream.send_data(content.into()).await?;
                    stream.finish().await?;
                    anyhow::Ok(())
                });
            }
            anyhow::Ok(())
        });
    }
    Ok(())
}

type Sender = h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>;

async fn h3_client(endpoint: quinn::Endpoint, to: SocketAddr, n: usize) -> Result<()> {
    let conn = endpoint.connect(to, "b")?.await?;
    let (mut driver, mut sender) = h3::client::new(h3_quinn::Connection::new(conn.clone())).await?;
    let driving = tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
    for i in 0..n {
        let (method, _) = request(&mut sender, "GET", Vec::new()).await?;
        ensure!(method == "GET", "x-method {method}");
        let content = vec![b'x'; i * 3000 + 1];
        let (_, got) = request(&mut sender, "POST", content.clone()).await?;
        ensure!(got == content, "{} bytes of {} come back", got.len(), content.len());
    }
    let mut side_by_side = tokio::task::JoinSet::new();
    for size in 1..30 {
        let mut sender = sender.clone();
        side_by_side.spawn(async move { anyhow::Ok((size, request(&mut sender, "POST", vec![b'y'; size]).await?.1.len())) });
    }
    while let Some(done) = side_by_side.join_next().await {
        let (sent, got) = done??;
        ensure!(sent == got, "{got} bytes of {sent} come back");
    }
    drop(sender);
    let end = tokio::time::timeout(Duration::from_secs(5), driving).await.context("the connection does not end")??;
    ensure!(end.is_h3_no_error(), "the connection ends with {end}");
    endpoint.wait_idle().await;
    println!("ok");
    Ok(())
}

/// Returns the header x-method and the content. A POST is echoed.
async fn request(sender: &mut Sender, method: &str, content: Vec<u8>) -> Result<(String, Vec<u8>)> {
    let path = if method == "POST" { "/echo" } else { "/" };
    let request = http::Request::builder().method(method).uri(format!("https://b{path}")).body(())?;
    let mut stream = sender.send_request(request).await?;
    if !content.is_empty() {
        stream.send_data(content.into()).await?;
    }
    stream.finish().await?;
    let response = stream.recv_response().await?;
    ensure!(response.status() == 200, "status {}", response.status());
    let seen = response.headers().get("x-method").map_or("", |v| v.to_str().unwrap_or(""));
    let mut got = Vec::new();
    while let Some(mut part) = stream.recv_data().await? {
        got.extend_from_slice(&part.copy_to_bytes(part.remaining()));
    }
    Ok((seen.to_string(), got))
}
