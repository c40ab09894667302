package upgrade

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of a message. The kernel permits 253 descriptors (SCM_MAX_FD).
const (
	mostBytes = 128 << 10
	mostFiles = 250
)

// The kinds of messages of version 1.
const (
	kindOffer    = "offer"
	kindSocket   = "socket"
	kindEnd      = "end"
	kindPrepared = "prepared"
	kindRefused  = "refused"
	kindServe    = "serve"
	kindServing  = "serving"
	kindOver     = "over"
)

// message is one unit of the conversation.
type message struct {
	Kind string          `json:"kind"`
	Body json.RawMessage `json:"body,omitempty"`

	files []*os.File
}

// errGone reports that the other process has closed its end.
var errGone = errors.New("the other process has ended")

// conn sends and receives messages.
type conn struct{ *net.UnixConn }

// pair returns a conn, and the other end for another process.
func pair() (conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return conn{}, nil, fmt.Errorf("socketpair: %w", err)
	}
	for _, fd := range fds {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 2*mostBytes) // what the kernel permits
	}
	c, err := newConn(os.NewFile(uintptr(fds[0]), "upgrade"))
	other := os.NewFile(uintptr(fds[1]), "upgrade")
	if err != nil {
		other.Close()
	}
	return c, other, err
}

// newConn takes one end of a pair.
func newConn(f *os.File) (conn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return conn{}, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return conn{}, fmt.Errorf("%s is no unix socket", f.Name())
	}
	return conn{u}, nil
}

// send sends a message. Files stay the caller's.
func (c conn) send(kind string, body any, files ...*os.File) error {
	m := message{Kind: kind}
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		m.Body = b
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(text) > mostBytes || len(files) > mostFiles {
		return fmt.Errorf("a message of %d bytes and %d descriptors, at most %d and %d", len(text), len(files), mostBytes, mostFiles)
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			raw, err := f.SyscallConn() // Fd may change the mode, which the other process shares
			if err == nil {
				err = raw.Control(func(fd uintptr) { fds[i] = int(fd) })
			}
			if err != nil {
				return err
			}
		}
		rights = unix.UnixRights(fds...)
	}
	if _, _, err = c.WriteMsgUnix(text, rights, nil); errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return errGone
	}
	return err
}

// receive returns the next message, until a time. The caller closes its files.
func (c conn) receive(until time.Time) (m message, err error) {
	if err := c.SetReadDeadline(until); err != nil {
		return m, err
	}
	text, oob := make([]byte, mostBytes), make([]byte, unix.CmsgSpace(4*mostFiles))
	n, k, flags, _, err := c.ReadMsgUnix(text, oob)
	if n == 0 || errors.Is(err, unix.ECONNRESET) {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return m, err
		}
		return m, errGone
	}
	if err != nil {
		return m, err
	}
	files, err := received(oob[:k])
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("a message was cut: more bytes or descriptors than the format or the limit of open files permits")
	}
	if err == nil {
		err = json.Unmarshal(text[:n], &m)
	}
	if m.files = files; err != nil {
		m.close()
		return message{}, fmt.Errorf("a message that is not understood: %w", err)
	}
	return m, nil
}

// received returns the descriptors of ancillary data as files.
func received(oob []byte) (files []*os.File, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range list {
		fds, err := unix.ParseUnixRights(&list[i])
		if err != nil {
			continue // other ancillary data
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "inherited"))
		}
	}
	return files, nil
}

// close closes the files of a message.
func (m *message) close() {
	for _, f := range m.files {
		f.Close()
	}
	m.files = nil
}

// unknown is the error of a message of a kind that is not expected.
func (m *message) unknown() error {
	return fmt.Errorf("a message %q is not expected here (the programs differ too much: stop and start instead)", m.Kind)
}
