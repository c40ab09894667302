package applayer

import (
	"bytes"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/millrace/millrace/filter/initial"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/tls/clienthello"
)

// quicFlow is the first datagrams of a client of QUIC, up to its ClientHello. The keys of Initial packets follow from the connection ID
// in them (RFC 9001 5.2): what they carry is not secret, and nothing behind it can be read.
type quicFlow struct {
	hello   initial.Collector
	version uint32 // of the last one that was evaluated
	done    bool
}

// isQUIC reports whether a datagram begins with an Initial packet that can be read, or with a hello of Google's QUIC, which is not
// encrypted.
func isQUIC(b []byte) bool {
	version, ok := initial.Version(b)
	return ok && b[0]&0x40 != 0 && (initial.Known(version) || isGoogleQUIC(version) && bytes.Contains(b[:min(len(b), maxGoogleHeader)], googleHello))
}

// isGoogleQUIC reports whether a version is Q046 or one before it.
func isGoogleQUIC(version uint32) bool { return version>>8 == 0x513034 && version <= 0x51303436 }

var googleHello = []byte("CHLO")

// maxGoogleHeader is where a hello of Google's QUIC begins at most.
const maxGoogleHeader = 100

// Parse reads a datagram.
func (q *quicFlow) Parse(c *Context, b []byte) {
	version, ok := initial.Version(b)
	if !ok || c.Dir == signature.ToClient || q.done {
		return
	}
	if isGoogleQUIC(version) {
		q.google(c, b)
		return
	}
	if version != q.version { // again behind a Version Negotiation (RFC 9000 6.2)
		q.version, q.hello = version, initial.Collector{}
	}
	if !q.hello.Datagram(b) {
		return
	}
	message, more := q.hello.Hello()
	if message == nil && more {
		return
	}
	c.Message.Reset()
	c.Message.Put(signature.QUICVersion, bytes.Clone(b[1:5]))
	c.Message.Text = b
	if message != nil {
		quicHello(c.Message, message)
	}
	q.hello.Done()
	q.done = true
	c.inspect()
}

// quicHello fills the buffers of a ClientHello.
func quicHello(t *Message, m []byte) {
	if name, _, _ := bytes.Cut(clienthello.SentServerName(m[4:]), []byte{0}); len(name) > 0 {
		t.Put(signature.QUICSNI, bytes.Clone(name))
	}
	var h clienthello.Hello
	if clienthello.ParseMessage(m, &h) != nil {
		return
	}
	text := h.AppendJA3Text(nil)
	hash := md5.Sum(text)
	t.Put(signature.JA3String, text)
	t.Put(signature.JA3Hash, []byte(hex.EncodeToString(hash[:])))
	t.Put(signature.JA4Hash, h.AppendJA4(nil, 'q'))
}

// Finish evaluates a client whose ClientHello was not whole: its version is known.
func (q *quicFlow) Finish(c *Context) {
	if q.done || q.version == 0 {
		return
	}
	q.done = true
	c.Message.Reset()
	c.Message.Put(signature.QUICVersion, binary.BigEndian.AppendUint32(nil, q.version))
	c.Host.Inspect(signature.ToServer)
}

// maxGoogleTags bounds the tags of a hello that are read.
const maxGoogleTags = 64

// google reads a hello of Google's QUIC before version 50: a table of tags with the ends of their values, and these.
//
//	| "CHLO" | number 16 | 0 16 | (tag 32, end 32) ... | values |
func (q *quicFlow) google(c *Context, b []byte) {
	at := bytes.Index(b[:min(len(b), maxGoogleHeader)], googleHello)
	if at < 0 {
		return
	}
	t := c.Message
	t.Reset()
	t.Text = b
	t.Put(signature.QUICVersion, b[1:5])
	l := little{b[at+4:]}
	n := min(int(l.uint16(0)), maxGoogleTags)
	values := 4 + 8*n
	var tags []string
	begin := 0
	for i := range n {
		tag := l.at(4+8*i, 4)
		end := int(l.uint32(4 + 8*i + 4))
		if len(tag) < 4 || end < begin {
			break
		}
		value := l.at(values+begin, end-begin)
		name := string(bytes.TrimRight(tag, "\x00\xff"))
		switch name {
		case "SNI":
			t.Put(signature.QUICSNI, value)
		case "UAID":
			t.Put(signature.QUICUserAgent, value)
		}
		tags, begin = append(tags, name), end
	}
	text := strings.TrimLeft(string(b[2:5]), "0") + "," + strings.Join(tags, "-")
	hash := md5.Sum([]byte(text))
	t.Put(signature.QUICCyuString, []byte(text))
	t.Put(signature.QUICCyuHash, []byte(hex.EncodeToString(hash[:])))
	q.done = true
	c.inspect()
}

// Close implements Parser.
func (q *quicFlow) Close(*Context) {}

// Size implements Parser.
func (q *quicFlow) Size() int { return quicSize + q.hello.Size() }

const quicSize = 160
