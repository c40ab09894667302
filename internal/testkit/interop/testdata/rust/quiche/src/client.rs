//! Clients of one connection at a time.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use quiche::h3::Header;

use crate::Result;
use crate::endpoint::{self, Pending};
use crate::h3::{self, Requests};

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(50);

struct Client {
    socket: UdpSocket,
    conn: quiche::Connection,
    end: Instant,
}

impl Client {
    fn open(to: SocketAddr, alpn: &[u8], session: Option<&[u8]>) -> Result<Self> {
        let mut config = endpoint::config(alpn)?;
        config.verify_peer(false); // the certificate has no issuer
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(to)?;
        let mut conn = quiche::connect(Some("b"), &endpoint::random_id()?, socket.local_addr()?, to, &mut config)?;
        if let Some(session) = session {
            conn.set_session(session)?;
        }
        let mut c = Client { socket, conn, end: Instant::now() + PATIENCE };
        while !c.conn.is_established() {
            c.step()?;
        }
        Ok(c)
    }

    /// Sends what is due, and waits for a packet or a timer.
    fn step(&mut self) -> Result<()> {
        let mut buf = [0; 65536];
        loop {
            match self.conn.send(&mut buf) {
                Ok((n, _)) => _ = self.socket.send(&buf[..n])?,
                Err(quiche::Error::Done) => break,
                Err(e) => return Err(e.into()),
            }
        }
        if self.conn.is_closed() || Instant::now() > self.end {
            return Err(format!("the connection ends: {:?}, {:?}", self.conn.peer_error(), self.conn.local_error()).into());
        }
        let wait = self.conn.timeout().unwrap_or(Duration::from_secs(1)).clamp(Duration::from_millis(1), Duration::from_secs(1));
        self.socket.set_read_timeout(Some(wait))?;
        match self.socket.recv(&mut buf) {
            Ok(n) => {
                let info = quiche::RecvInfo { from: self.socket.peer_addr()?, to: self.socket.local_addr()? };
                self.conn.recv(&mut buf[..n], info)?;
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => self.conn.on_timeout(),
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    fn close(&mut self, code: u64) -> Result<()> {
        self.conn.close(true, code, b"")?;
        endpoint::flush(&self.socket, &mut self.conn)
    }
}

pub fn echo(to: SocketAddr, size: usize, n: usize) -> Result<()> {
    let mut session: Option<Vec<u8>> = None;
    for i in 0..n {
        let mut c = Client::open(to, b"echo", session.as_deref())?;
        if c.conn.is_resumed() != (i > 0) {
            return Err(format!("connection {i}: resumed {}", c.conn.is_resumed()).into());
        }
        let data: Vec<u8> = (0..size).map(|k| ((k * (i + 7)) >> 3) as u8).collect();
        let mut out = Pending::new(data.clone());
        let (mut got, mut all, mut ended) = (Vec::new(), false, false);
        let mut part = [0; 65536];
        while !ended {
            all = all || out.send(&mut c.conn, 0)?;
            while let Ok((n, fin)) = c.conn.stream_recv(0, &mut part) {
                got.extend_from_slice(&part[..n]);
                ended |= fin;
            }
            c.step()?;
        }
        if got != data {
            return Err(format!("{} bytes of {size} come back", got.len()).into());
        }
        session = c.conn.session().map(<[u8]>::to_vec);
        c.close(0)?;
    }
    println!("ok");
    Ok(())
}

pub fn requests(to: SocketAddr, n: usize) -> Result<()> {
    let mut c = Client::open(to, b"h3", None)?;
    let mut requests = Requests::new(&mut c.conn)?;
    for i in 0..n {
        exchange(&mut c, &mut requests, "GET", vec![Vec::new()])?;
        exchange(&mut c, &mut requests, "POST", vec![vec![b'x'; i * 3000 + 1]])?;
    }
    exchange(&mut c, &mut requests, "POST", (1..30).map(|k| vec![b'y'; k]).collect())?;
    c.close(0x100)?; // H3_NO_ERROR
    println!("ok");
    Ok(())
}

/// Sends requests side by side, and checks the answers.
fn exchange(c: &mut Client, requests: &mut Requests, method: &str, contents: Vec<Vec<u8>>) -> Result<()> {
    let mut open: HashMap<u64, (Vec<u8>, usize)> = HashMap::new();
    let path: &[u8] = if method == "POST" { b"/echo" } else { b"/" };
    for content in contents {
        let header = [
            Header::new(b":method", method.as_bytes()), Header::new(b":scheme", b"https"),
            Header::new(b":authority", b"b"), Header::new(b":path", path),
        ];
        let id = requests.conn.send_request(&mut c.conn, &header, content.is_empty())?;
        open.insert(id, (content, 0));
    }
    while !open.is_empty() {
        for (&id, (content, sent)) in &mut open {
            h3::send(&mut requests.conn, &mut c.conn, id, content, sent)?;
        }
        requests.receive(&mut c.conn)?;
        let done: Vec<u64> = open.keys().copied().filter(|id| requests.messages.get(id).is_some_and(|m| m.complete)).collect();
        for id in done {
            let (sent, _) = open.remove(&id).unwrap();
            let m = requests.messages.remove(&id).unwrap();
            let right = m.content == sent && (method == "POST" || m.header(b"x-method") == method.as_bytes());
            if m.header(b":status") != b"200" || !right {
                return Err(format!("{} bytes of {} come back: {:?}", m.content.len(), sent.len(), m.headers).into());
            }
        }
        if !open.is_empty() {
            c.step()?;
        }
    }
    Ok(())
}
