// Package applayer splits application protocols into the buffers that inspection rules name: DNS, FTP, MQTT, NFS, QUIC, SIP, SMB,
// SMTP, SSH and TLS. It recognises those, HTTP and two more by the first bytes of a flow.
//
// A Parser has the state of one flow. It gets the bytes of each direction in order and without gaps, in segments of any size, and
// reports each message by Context.Message and Host.Inspect. What it holds of incomplete messages is bounded and counted
// (Size): a client could otherwise have it hold any amount for each of its flows.
//
// Parsers are lenient where receivers are. A message that a receiver reads and a parser refuses would hide what rules look for.
//
// The package is pure. Nothing of it is safe for concurrent use.
package applayer

import (
	"encoding/binary"
	"net/netip"

	"github.com/millrace/millrace/filter/signature"
)

// MaxHead bounds the head of a message, as servers do (8 KiB to 64 KiB): a longer one is refused there, and inspected no
// further here.
const MaxHead = 64 << 10

// Message holds the buffers of one request, one response or one file.
type Message struct {
	Buffers [signature.Buffers][][]byte // the instances of each
	Used    []signature.Buffer          // those with an instance
	Text    []byte                      // what an alert shows
	Scratch []byte                      // of whoever fills the buffers: it is used again for the next message
}

// Reset empties all buffers.
func (m *Message) Reset() {
	for _, b := range m.Used {
		m.Buffers[b] = m.Buffers[b][:0]
	}
	m.Used, m.Text = m.Used[:0], nil
}

// Put adds an instance of a buffer, which is borrowed until the next Reset. Nil is none; empty is one.
func (m *Message) Put(b signature.Buffer, text []byte) {
	if text == nil {
		return
	}
	if len(m.Buffers[b]) == 0 {
		m.Used = append(m.Used, b)
	}
	m.Buffers[b] = append(m.Buffers[b], text)
}

// Host is the engine that runs a parser, during one of its methods.
type Host interface {
	// Inspect evaluates rules on the message, of a direction.
	Inspect(d signature.Direction)
	// NewFile returns a file that the flow transfers.
	NewFile() File
	// Secure continues the flow as TLS (STARTTLS). The parser that calls it gets nothing more.
	Secure(b []byte)
	// GiveUp notes that not all of the flow is parsed: a bound was met, or it is not in the protocol after all.
	GiveUp()
}

// File is a file that a flow transfers, whose rules see its name and its bytes. It keeps these up to the bound of bodies.
type File interface {
	// Describe sets the name, nil where it is not known, and the command of FTP.
	Describe(name, command []byte)
	// Write appends bytes.
	Write(d signature.Direction, b []byte)
	// WriteAt sets bytes at an offset.
	WriteAt(d signature.Direction, offset uint64, b []byte)
	// End evaluates a file of which no more is inspected, and forgets its bytes.
	End(d signature.Direction)
	// Size returns how many bytes are held.
	Size() int
}

// Context is the call of a parser: where it reports to, and what the bytes belong to.
type Context struct {
	Host      Host
	Message   *Message
	Transfers *Transfers // of all flows of the engine
	Dir       signature.Direction
	Src, Dst  netip.Addr // of the packet in which the bytes came
	Limit     int        // bytes of each file that are inspected
}

// side returns the index of the direction of the bytes.
func (c *Context) side() int { return signature.SideOf(c.Dir) }

// inspect evaluates the message.
func (c *Context) inspect() { c.Host.Inspect(c.Dir) }

// Parser parses the messages of one flow.
type Parser interface {
	// Parse reads bytes of Context.Dir: of a stream those that follow the ones before, of UDP a datagram.
	Parse(c *Context, b []byte)
	// Finish inspects what is not complete when the flow ends.
	Finish(c *Context)
	// Close gives back what the parser has outside of the flow.
	Close(c *Context)
	// Size returns how many bytes it holds.
	Size() int
}

// New returns the parser of a protocol; nil where this package has none.
func New(app signature.App) Parser {
	switch app {
	case signature.AppDNS:
		return &dnsFlow{}
	case signature.AppFTP:
		return &ftpFlow{}
	case signature.AppMQTT:
		return &mqttFlow{}
	case signature.AppNFS:
		return &nfsFlow{}
	case signature.AppQUIC:
		return &quicFlow{}
	case signature.AppSIP:
		return &sipFlow{}
	case signature.AppSMB:
		return &smbFlow{}
	case signature.AppSMTP:
		return &smtpFlow{}
	case signature.AppSSH:
		return &sshFlow{}
	case signature.AppTLS:
		return &tlsFlow{}
	}
	return nil
}

// Datagram reads a datagram. Each of DNS and SIP is a whole message, for which p may be nil.
func Datagram(c *Context, app signature.App, p Parser, b []byte) {
	switch app {
	case signature.AppDNS:
		dnsMessage(c, b)
	case signature.AppSIP:
		sipDatagram(c, b)
	case signature.AppNFS:
		if f, ok := p.(*nfsFlow); ok {
			f.message(c, b)
		}
	case signature.AppQUIC:
		if p != nil {
			p.Parse(c, b)
		}
	}
}

// stateless is the part of a parser that holds nothing at the end of its flow.
type stateless struct{}

// Finish implements Parser.
func (stateless) Finish(*Context) {}

// Close implements Parser.
func (stateless) Close(*Context) {}

// sliceSize is the size of a slice without its bytes.
const sliceSize = 24

// bigEndian is the form of a number in a buffer.
func bigEndian(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
