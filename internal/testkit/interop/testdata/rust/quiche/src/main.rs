//! quiche as a client or server, and h3i, which sends what HTTP/3 forbids.
//!
//!   quic server CERT KEY HOST          echoes streams; prints its port
//!   quic client PORT BYTES N HOST      N connections of one stream, all but the first resumed; prints "ok"
//!   h3 server CERT KEY HOST            echoes contents; prints its port
//!   h3 client PORT N HOST              N requests of each kind, some side by side; prints "ok"
//!   h3i PORT HOST                      one connection for each case; prints what failed, and "N passed, M failed"

use std::net::SocketAddr;

mod client;
mod endpoint;
mod h3;
mod malformed;
mod server;

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["quic", "server", cert, key, host] => server::run(cert, key, host, b"echo"),
        ["h3", "server", cert, key, host] => server::run(cert, key, host, b"h3"),
        ["quic", "client", port, size, n, host] => client::echo(address(host, port)?, size.parse()?, n.parse()?),
        ["h3", "client", port, n, host] => client::requests(address(host, port)?, n.parse()?),
        ["h3i", port, host] => malformed::run(address(host, port)?),
        _ => Err("usage: quic|h3 server CERT KEY HOST, quic client PORT BYTES N HOST, h3 client PORT N HOST, h3i PORT HOST".into()),
    }
}

fn address(host: &str, port: &str) -> Result<SocketAddr> {
    Ok(SocketAddr::new(host.parse()?, port.parse()?))
}
