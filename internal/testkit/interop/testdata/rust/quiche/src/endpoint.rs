//! What clients and servers have in common: the configuration, and sending.

use std::fs::File;
use std::io::Read;
use std::net::UdpSocket;

use crate::Result;

/// The size of UDP payloads: what every path carries (RFC 9000 14).
pub const PACKET: usize = 1200;

pub fn config(alpn: &[u8]) -> Result<quiche::Config> {
    let mut c = quiche::Config::new(quiche::PROTOCOL_VERSION)?;
    c.set_application_protos(&[alpn])?;
    c.set_max_idle_timeout(30_000);
    c.set_max_recv_udp_payload_size(65527);
    c.set_max_send_udp_payload_size(PACKET);
    c.set_initial_max_data(10_000_000);
    c.set_initial_max_stream_data_bidi_local(1_000_000);
    c.set_initial_max_stream_data_bidi_remote(1_000_000);
    c.set_initial_max_stream_data_uni(1_000_000);
    c.set_initial_max_streams_bidi(100);
    c.set_initial_max_streams_uni(100);
    Ok(c)
}

/// Returns a connection ID.
pub fn random_id() -> Result<quiche::ConnectionId<'static>> {
    let mut id = [0; quiche::MAX_CONN_ID_LEN];
    File::open("/dev/urandom")?.read_exact(&mut id)?;
    Ok(id.to_vec().into())
}

/// Sends what a connection has to send now.
pub fn flush(socket: &UdpSocket, conn: &mut quiche::Connection) -> Result<()> {
    let mut out = [0; PACKET];
    loop {
        match conn.send(&mut out) {
            Ok((n, info)) => _ = socket.send_to(&out[..n], info.to)?,
            Err(quiche::Error::Done) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Bytes that wait to be sent on a stream.
#[derive(Default)]
pub struct Pending {
    pub bytes: Vec<u8>,
    pub sent: usize,
    pub complete: bool,
}

impl Pending {
    pub fn new(bytes: Vec<u8>) -> Self {
        Pending { bytes, sent: 0, complete: true }
    }

    /// Sends what the stream takes, and returns whether that was all.
    pub fn send(&mut self, conn: &mut quiche::Connection, stream: u64) -> Result<bool> {
        match conn.stream_send(stream, &self.bytes[self.sent..], self.complete) {
            Ok(n) => self.sent += n,
            Err(quiche::Error::Done) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
        Ok(self.complete && self.sent == self.bytes.len())
    }
}
