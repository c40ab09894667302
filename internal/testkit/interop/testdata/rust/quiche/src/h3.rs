//! HTTP/3 over a connection, at either end.

use std::collections::HashMap;

use quiche::h3::{self, Event, Header, NameValue};

use crate::Result;

/// A message that arrives, and the content that answers it.
#[derive(Default)]
pub struct Message {
    pub headers: Vec<Header>,
    pub content: Vec<u8>,
    pub complete: bool,
    answered: bool, // the header of the answer is sent
    sent: usize,    // of its content
}

impl Message {
    pub fn header(&self, name: &[u8]) -> &[u8] {
        self.headers.iter().find(|h| h.name() == name).map_or(b"", |h| h.value())
    }

    /// The fields of this name, joined (RFC 9114 4.2.1).
    fn cookie(&self) -> Vec<u8> {
        self.headers.iter().filter(|h| h.name() == b"cookie").map(|h| h.value()).collect::<Vec<_>>().join(&b"; "[..])
    }
}

pub struct Requests {
    pub conn: h3::Connection,
    pub messages: HashMap<u64, Message>,
}

impl Requests {
    pub fn new(conn: &mut quiche::Connection) -> Result<Self> {
        Ok(Requests { conn: h3::Connection::with_transport(conn, &h3::Config::new()?)?, messages: HashMap::new() })
    }

    /// Takes what has arrived.
    pub fn receive(&mut self, conn: &mut quiche::Connection) -> Result<()> {
        let mut part = [0; 65536];
        loop {
            let (id, event) = match self.conn.poll(conn) {
                Ok(v) => v,
                Err(h3::Error::Done) => return Ok(()),
                Err(e) => return Err(e.into()),
            };
            let message = self.messages.entry(id).or_default();
            match event {
                Event::Headers { list, .. } => message.headers.extend(list),
                Event::Data => {
                    while let Ok(n) = self.conn.recv_body(conn, id, &mut part) {
                        message.content.extend_from_slice(&part[..n]);
                    }
                }
                Event::Finished => message.complete = true,
                Event::Reset(code) => return Err(format!("stream {id} is reset with {code:#x}").into()),
                Event::PriorityUpdate | Event::GoAway => {}
            }
        }
    }

    /// Answers requests with their content.
    pub fn echo(&mut self, conn: &mut quiche::Connection) -> Result<()> {
        self.receive(conn)?;
        let mut done = Vec::new();
        for (&id, m) in self.messages.iter_mut().filter(|(_, m)| m.complete) {
            if !m.answered {
                let status: &[u8] = if m.header(b":path") == b"/cookie" && m.cookie() != b"a=1; b=2" { b"500" } else { b"200" };
                let answer = [Header::new(b":status", status), Header::new(b"x-method", m.header(b":method"))];
                match self.conn.send_response(conn, id, &answer, m.content.is_empty()) {
                    Ok(()) => m.answered = true,
                    Err(h3::Error::StreamBlocked) => continue,
                    Err(e) => return Err(e.into()),
                }
            }
            if send(&mut self.conn, conn, id, &m.content, &mut m.sent)? {
                done.push(id);
            }
        }
        for id in done {
            self.messages.remove(&id);
        }
        Ok(())
    }
}

/// Sends content from an offset on, as far as the stream takes it, and returns whether that was all.
pub fn send(h3: &mut h3::Connection, conn: &mut quiche::Connection, id: u64, content: &[u8], sent: &mut usize) -> Result<bool> {
    while *sent < content.len() {
        match h3.send_body(conn, id, &content[*sent..], true) {
            Ok(n) => *sent += n,
            Err(h3::Error::Done) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(true)
}
