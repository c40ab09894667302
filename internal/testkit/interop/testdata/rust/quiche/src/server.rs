//! A server of one socket: connections by their IDs, echoes of streams or of contents.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Duration;

use crate::Result;
use crate::endpoint::{self, Pending};
use crate::h3::Requests;

struct Client {
    conn: quiche::Connection,
    streams: HashMap<u64, Pending>,
    requests: Option<Requests>,
}

pub fn run(cert: &str, key: &str, host: &str, alpn: &[u8]) -> Result<()> {
    let mut config = endpoint::config(alpn)?;
    config.load_cert_chain_from_pem_file(cert)?;
    config.load_priv_key_from_pem_file(key)?;
    let socket = UdpSocket::bind((host, 0))?;
    let local = socket.local_addr()?;
    println!("{}", local.port());
    let mut clients: Vec<Client> = Vec::new();
    let mut ids: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut buf = vec![0; 65536];
    loop {
        let wait = clients.iter().filter_map(|c| c.conn.timeout()).min().unwrap_or(Duration::from_secs(1));
        socket.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
        match socket.recv_from(&mut buf) {
            Ok((n, from)) => {
                let Ok(header) = quiche::Header::from_slice(&mut buf[..n], quiche::MAX_CONN_ID_LEN) else { continue };
                let known = ids.get(header.dcid.as_ref()).copied();
                let i = match known {
                    Some(i) => i,
                    None if header.ty == quiche::Type::Initial && quiche::version_is_supported(header.version) => {
                        let id = endpoint::random_id()?;
                        let conn = quiche::accept(&id, None, local, from, &mut config)?;
                        ids.insert(id.to_vec(), clients.len());
                        ids.insert(header.dcid.to_vec(), clients.len());
                        clients.push(Client { conn, streams: HashMap::new(), requests: None });
                        clients.len() - 1
                    }
                    None => continue,
                };
                let _ = clients[i].conn.recv(&mut buf[..n], quiche::RecvInfo { from, to: local }); // it closes by itself
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(e) => return Err(e.into()),
        }
        for c in &mut clients {
            if c.conn.timeout() == Some(Duration::ZERO) {
                c.conn.on_timeout();
            }
            if let Err(e) = c.serve(alpn == b"h3") {
                eprintln!("{}: {e}", c.conn.trace_id());
            }
            endpoint::flush(&socket, &mut c.conn)?;
        }
    }
}

impl Client {
    fn serve(&mut self, h3: bool) -> Result<()> {
        if !self.conn.is_established() || self.conn.is_closed() {
            return Ok(());
        }
        if h3 {
            if self.requests.is_none() {
                self.requests = Some(Requests::new(&mut self.conn)?);
            }
            return self.requests.as_mut().unwrap().echo(&mut self.conn);
        }
        let mut part = [0; 65536];
        for id in self.conn.readable() {
            let stream = self.streams.entry(id).or_default();
            while let Ok((n, fin)) = self.conn.stream_recv(id, &mut part) {
                stream.bytes.extend_from_slice(&part[..n]);
                stream.complete |= fin;
            }
        }
        let conn = &mut self.conn;
        let mut failed = Ok(());
        self.streams.retain(|&id, stream| match stream.send(conn, id) {
            Ok(all) => !all,
            Err(e) => {
                failed = Err(e);
                false
            }
        });
        failed
    }
}
