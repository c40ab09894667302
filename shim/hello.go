package shim

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Node is what a running Server says of itself.
type Node struct {
	Name  string // of the stack
	Token string // lets the processes of a program go on that change their user
	UID   uint32 // of the server
}

// helloTime is how long a server may take to answer.
const helloTime = 10 * time.Second

// Hello asks the Server at path whether this process may use it: EACCES is no; ENOENT and ECONNREFUSED are that none runs.
func Hello(path string) (Node, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return Node{}, err
	}
	defer conn.Close()
	cred, err := peerCredentials(conn)
	if err != nil {
		return Node{}, err
	}
	if err := conn.SetDeadline(time.Now().Add(helloTime)); err != nil {
		return Node{}, err
	}
	q := request{op: opHello, arg: requestSize, value: []byte(filepath.Base(os.Args[0]) + "\x00" + os.Getenv("MILLRACE_SHIM_TOKEN"))}
	var out [requestSize]byte
	q.encode(out[:])
	var in [replySize + 1]byte
	n := 0
	if _, err = conn.Write(out[:]); err == nil {
		n, err = conn.Read(in[:])
	}
	if err != nil {
		return Node{}, refusedOr(conn, err)
	}
	r, err := decodeReply(in[:n])
	switch {
	case err != nil:
		return Node{}, err
	case r.errno != 0:
		return Node{}, fmt.Errorf("%s: %w", path, r.errno)
	}
	name, token, ok := bytes.Cut(r.value, []byte{0})
	if !ok {
		return Node{}, fmt.Errorf("%s: %w", path, syscall.EPROTO)
	}
	return Node{Name: string(name), Token: text(token), UID: cred.Uid}, nil
}

// refusedOr is refusal, or the cause itself.
func refusedOr(conn *net.UnixConn, cause error) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return cause
	}
	_ = raw.Control(func(fd uintptr) {
		if refused := refusal(int(fd), cause); refused != nil {
			cause = fmt.Errorf("too many control channels or descriptors: %w", refused)
		}
	})
	return cause
}
