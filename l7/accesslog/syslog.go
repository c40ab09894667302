package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/logqueue"
)

// Syslog is a server that takes lines.
type Syslog struct {
	Network  string // "unix" (datagrams), "udp" or "tcp"
	Address  string // path, or IP:port
	Facility string // one of Facilities
	App      string // APP-NAME
}

// Facilities are the facilities of RFC 5424 6.2.1, in the order of their numbers.
var Facilities = []string{
	"kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp", "audit", "alert", "clock",
	"local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
}

// header holds the HEADER and STRUCTURED-DATA of messages (RFC 5424 6): the priority, before the time, and the rest after it.
type header struct{ info, err, rest string }

const severityError, severityInfo = 3, 6

func newHeader(s *Syslog) *header {
	host, err := os.Hostname()
	if err != nil || host == "" || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' }) {
		host = "-"
	}
	base := 8 * slices.Index(Facilities, s.Facility)
	return &header{
		info: fmt.Sprintf("<%d>1 ", base+severityInfo), err: fmt.Sprintf("<%d>1 ", base+severityError),
		rest: fmt.Sprintf(" %s %s %d access - ", host, s.App, os.Getpid()),
	}
}

func (h *header) append(b []byte, m *moments, r *Record) []byte {
	if r.Status >= 500 || r.Error != "" {
		b = append(b, h.err...)
	} else {
		b = append(b, h.info...)
	}
	return append(m.appendTime(b), h.rest...)
}

// conn sends lines to a server, each as a message. It connects when there is something to send. An error other than the loss of a
// message has the queue wait: see logqueue.ErrLater.
type conn struct {
	to   Syslog
	lost atomic.Uint64 // messages that this host knows did not arrive

	mu     sync.Mutex // guards all below; held while a server takes nothing
	frames []int      // lengths of frames that the peer has not acknowledged, with TCP
	text   []byte

	open   sync.Mutex // guards net and closed: Close ends a write that does not return
	net    net.Conn
	closed bool
}

func newConn(to Syslog) *conn { return &conn{to: to} }

var errClosed = errors.New("the log is closed")

// dialTime bounds how long a server may take to answer.
const dialTime = 5 * time.Second

// connected returns the connection, a new one where there is none.
func (c *conn) connected() (net.Conn, error) {
	c.open.Lock()
	defer c.open.Unlock()
	switch {
	case c.closed:
		return nil, errClosed
	case c.net != nil:
		return c.net, nil
	}
	network := c.to.Network
	if network == "unix" {
		network = "unixgram"
	}
	n, err := net.DialTimeout(network, c.to.Address, dialTime)
	if err != nil {
		return nil, errors.Join(logqueue.ErrLater, err)
	}
	c.net = n
	return n, nil
}

// leave closes a connection that failed.
func (c *conn) leave() {
	c.open.Lock()
	defer c.open.Unlock()
	if c.net != nil {
		_ = c.net.Close() // it has failed
		c.net = nil
	}
}

// Close ends the connection, and writes that wait for the server.
func (c *conn) Close() error {
	c.open.Lock()
	defer c.open.Unlock()
	c.closed = true
	if c.net == nil {
		return nil
	}
	return c.net.Close()
}

// Write implements io.Writer over whole lines. With an error n ends with a line.
func (c *conn) Write(p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.to.Network == "tcp" {
		return c.stream(p)
	}
	for n < len(p) {
		line := p[n:]
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			line = line[:i+1]
		}
		if err := c.datagram(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			return n, err
		}
		n += len(line)
	}
	return n, nil
}

// datagram sends a message. A refusal of UDP is about one before it, which is lost, and so is a message that is too long.
func (c *conn) datagram(line []byte) error {
	n, err := c.connected()
	if err != nil {
		return err
	}
	_, err = n.Write(line)
	if errors.Is(err, unix.ECONNREFUSED) && c.to.Network == "udp" {
		c.lost.Add(1)
		_, err = n.Write(line)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EMSGSIZE):
		c.lost.Add(1)
		return nil
	case errors.Is(err, unix.ENOBUFS):
		return err
	}
	c.leave()
	return errors.Join(logqueue.ErrLater, err)
}

// stream sends messages as frames that begin with their length (RFC 6587 3.4.1).
func (c *conn) stream(p []byte) (n int, err error) {
	to, err := c.connected()
	if err != nil {
		return 0, err
	}
	if !c.alive(to) {
		c.broken(to, 0)
		if to, err = c.connected(); err != nil {
			return 0, err
		}
	}
	first := len(c.frames)
	c.text = c.text[:0]
	for line := range bytes.Lines(p) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		before := len(c.text)
		c.text = strconv.AppendInt(c.text, int64(len(line)), 10)
		c.text = append(append(c.text, ' '), line...)
		c.frames = append(c.frames, len(c.text)-before)
	}
	sent, err := to.Write(c.text)
	if err == nil {
		return len(p), nil
	}
	// Frames that were not sent as a whole go to the next connection.
	whole, rest := first, sent
	for whole < len(c.frames) && rest >= c.frames[whole] {
		rest -= c.frames[whole]
		whole++
	}
	c.frames = c.frames[:whole]
	c.broken(to, rest)
	return lineEnd(p, whole-first), errors.Join(logqueue.ErrLater, err)
}

// lineEnd returns where line n of p ends.
func lineEnd(p []byte, n int) (end int) {
	for line := range bytes.Lines(p) {
		if n == 0 {
			break
		}
		n, end = n-1, end+len(line)
	}
	return end
}

// unacknowledged returns how many bytes the peer has not acknowledged; all that is known of where it cannot be read.
func unacknowledged(to net.Conn) (bytes int, ok bool) {
	tcp, isTCP := to.(*net.TCPConn)
	if !isTCP {
		return 0, false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = errors.Join(raw.Control(func(fd uintptr) { bytes, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }), err)
	return bytes, err == nil
}

// alive reports whether the peer has not closed the connection, and forgets frames that it has acknowledged.
func (c *conn) alive(to net.Conn) bool {
	open := false
	if raw, err := to.(*net.TCPConn).SyscallConn(); err == nil {
		_ = raw.Read(func(fd uintptr) bool {
			var b [64]byte
			n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_DONTWAIT)
			open = n > 0 || errors.Is(err, unix.EAGAIN)
			return true
		})
	}
	c.acknowledged(to, 0)
	return open
}

// acknowledged forgets frames that the peer has. part is what was sent of a frame that is not among them.
func (c *conn) acknowledged(to net.Conn, part int) {
	left, ok := unacknowledged(to)
	if !ok {
		return
	}
	left -= part
	kept := len(c.frames)
	for kept > 0 && left > 0 {
		kept--
		left -= c.frames[kept]
	}
	c.frames = append(c.frames[:0], c.frames[kept:]...)
}

// broken counts what a connection that has ended did not deliver.
func (c *conn) broken(to net.Conn, part int) {
	c.acknowledged(to, part)
	c.lost.Add(uint64(len(c.frames)))
	c.frames = c.frames[:0]
	c.leave()
}
