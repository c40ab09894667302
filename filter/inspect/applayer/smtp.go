package applayer

import (
	"bytes"
	"strconv"

	"github.com/millrace/millrace/filter/inspect/ascii"
	"github.com/millrace/millrace/filter/signature"
)

// smtpFlow is the commands of a client of SMTP (RFC 5321) and the message that it sends. It follows the client alone: commands may be
// sent in advance of the answers (PIPELINING, RFC 2920), so what the server says decides little (answer).
type smtpFlow struct {
	state    smtpState
	line     []byte // an incomplete line of the client
	need     int64  // bytes of a chunk that are missing
	last     bool   // the chunk is the last of its message
	inAnswer bool   // the server is in the middle of a line
	mail     mail
}

// smtpState is where the client is.
type smtpState uint8

const (
	smtpCommand smtpState = iota
	smtpData              // lines of a message, up to a dot
	smtpChunk             // bytes of a message: need more (RFC 3030 2)
	smtpSecure            // behind STARTTLS: TLS, or commands where the server has refused (RFC 3207 4)
	smtpStop
)

// maxMailLine bounds what is kept of a line, of which servers take 1000 bytes at least (RFC 5321 4.5.3.1.6).
const maxMailLine = 64 << 10

// Parse reads what a client sends. A server's answers change nothing but for DATA: bytes that follow it are a message unless the
// server has refused, and text of a refused message is inspected all the same.
func (s *smtpFlow) Parse(c *Context, b []byte) {
	for len(b) > 0 && s.state != smtpStop {
		switch {
		case c.Dir == signature.ToClient:
			s.answer(b)
			return
		case s.state == smtpSecure && len(s.line) == 0 && b[0] == tlsHandshake:
			s.state = smtpStop
			c.Host.Secure(b)
			return
		case s.state == smtpChunk:
			n := int(min(int64(len(b)), s.need))
			s.mail.write(c, b[:n])
			b = b[n:]
			if s.need -= int64(n); s.need == 0 {
				s.chunkEnds(c)
			}
			continue
		}
		at := bytes.IndexByte(b, '\n') + 1
		if at == 0 {
			if s.line = append(s.line, b...); len(s.line) > maxMailLine {
				s.longLine(c)
			}
			return
		}
		line := append(s.line, b[:at]...)
		s.line, b = nil, b[at:]
		if s.state == smtpData {
			s.dataLine(c, line)
		} else {
			s.command(c, bytes.TrimRight(line, "\r\n"))
		}
	}
}

// answer notes that the server has refused a message.
func (s *smtpFlow) answer(b []byte) {
	for line := range bytes.Lines(b) {
		if !s.inAnswer && s.state == smtpData && s.mail.empty() && len(s.line) == 0 && (line[0] == '4' || line[0] == '5') {
			s.state = smtpCommand
		}
		s.inAnswer = line[len(line)-1] != '\n'
	}
}

// longLine takes what there is of a line that is too long: of a message as text, of a command as one that no server takes.
func (s *smtpFlow) longLine(c *Context) {
	line := s.line
	s.line = nil
	if s.state == smtpData {
		s.mail.write(c, line)
		return
	}
	s.state = smtpStop
	c.Host.GiveUp()
}

// command reads a command (RFC 5321 4.1). Verbs that are not known are no message, and change nothing.
func (s *smtpFlow) command(c *Context, line []byte) {
	verb, rest, _ := bytes.Cut(line, []byte{' '})
	s.state = smtpCommand
	switch word := string(bytes.ToUpper(verb)); word {
	case "HELO", "EHLO":
		smtpPut(c, signature.SMTPHelo, bytes.TrimSpace(rest), line)
	case "MAIL", "RCPT":
		b := signature.SMTPMailFrom
		if word == "RCPT" {
			b = signature.SMTPRcptTo
		}
		_, path, _ := bytes.Cut(rest, []byte{':'})
		smtpPut(c, b, mailbox(path), line)
	case "DATA":
		s.state, s.mail = smtpData, newMail()
	case "BDAT":
		size, more, _ := bytes.Cut(bytes.TrimSpace(rest), []byte{' '})
		n, err := strconv.ParseInt(string(size), 10, 63)
		if err != nil || n < 0 {
			return // a server refuses it
		}
		if !s.mail.begun {
			s.mail = newMail()
		}
		s.state, s.need, s.last = smtpChunk, n, ascii.IsWord(bytes.TrimSpace(more), "last")
		if n == 0 {
			s.chunkEnds(c)
		}
	case "RSET":
		s.mail.end(c)
	case "STARTTLS":
		s.state = smtpSecure
	}
}

// mailbox returns the address of a path: <local@domain> and parameters (RFC 5321 4.1.2).
func mailbox(path []byte) []byte {
	path = bytes.TrimSpace(path)
	if from := bytes.IndexByte(path, '<'); from >= 0 {
		path = path[from+1:]
		if to := bytes.IndexByte(path, '>'); to >= 0 {
			return path[:to]
		}
		return path
	}
	word, _, _ := bytes.Cut(path, []byte{' '})
	return word
}

// smtpPut evaluates a command.
func smtpPut(c *Context, b signature.Buffer, text, line []byte) {
	c.Message.Reset()
	c.Message.Put(b, text)
	c.Message.Text = line
	c.inspect()
}

// chunkEnds ends a message with its last chunk (RFC 3030 2).
func (s *smtpFlow) chunkEnds(c *Context) {
	if s.state = smtpCommand; s.last {
		s.mail.end(c)
	}
}

// dataLine reads a line of a message. A lone dot between two ends of lines is its end (RFC 5321 4.1.1.4); servers that take less
// than CR LF there read commands that are text here, and inspected as such.
func (s *smtpFlow) dataLine(c *Context, line []byte) {
	if string(line) == ".\r\n" && !s.mail.bare {
		s.state = smtpCommand
		s.mail.end(c)
		return
	}
	s.mail.bare = !bytes.HasSuffix(line, []byte("\r\n"))
	if line[0] == '.' { // stuffed (RFC 5321 4.5.2)
		line = line[1:]
	}
	s.mail.write(c, line)
}

// Finish implements Parser: the message may be inspected in part.
func (s *smtpFlow) Finish(c *Context) {
	c.Dir = signature.ToServer
	s.mail.end(c)
}

// Close implements Parser.
func (s *smtpFlow) Close(*Context) {}

// Size implements Parser.
func (s *smtpFlow) Size() int {
	m := &s.mail
	n := smtpSize + cap(s.line) + cap(m.line) + cap(m.body) + cap(m.rest) + cap(m.folded)
	for _, list := range [][][]byte{m.boundaries, m.names} {
		for _, b := range list {
			n += sliceSize + cap(b)
		}
	}
	return n
}

const smtpSize = 256
