package shim

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// secretSize is the size of a secret, in bytes.
const secretSize = 32

// macSize is how much of a MAC is kept, in bytes: 128 bits are beyond guessing.
const macSize = 16

// openSecret returns the secret of the nodes at a path. It is in a file beside the control socket, so that programs of before are known to
// the next node: their processes that have changed their user go on with their tokens, and make listeners again at low ports. A file that
// another user may have made or may read is none: the secret is of this run then.
func openSecret(path string) []byte {
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // it does not fail
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return secret
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode != unix.S_IFREG|0o600 || int(st.Uid) != os.Geteuid() || st.Nlink != 1 {
		return secret
	}
	if kept, err := io.ReadAll(io.LimitReader(f, secretSize+1)); err == nil && len(kept) == secretSize {
		return kept
	}
	if f.Truncate(0) == nil { // the write may be cut short by a full disk: the next node makes another one
		_, _ = f.WriteAt(secret, 0)
	}
	return secret
}

// mac returns what proves to this node and to those that follow that one of them has made parts.
func (s *Server) mac(parts ...any) []byte {
	h := hmac.New(sha256.New, s.secret)
	fmt.Fprintln(h, parts...)
	return h.Sum(nil)[:macSize]
}

// tokenOf returns the token of a user, which the next node knows, too, unless its configuration lets others in.
func (s *Server) tokenOf(uid uint32) string {
	return hex.EncodeToString(s.mac("token", uid, s.cfg.Groups, s.cfg.Everyone)) + "-" + strconv.FormatUint(uint64(uid), 10)
}

// userOfToken returns the user with a token, nil if there is none.
func (s *Server) userOfToken(token string) *user {
	_, number, ok := strings.Cut(token, "-")
	uid, err := strconv.ParseUint(number, 10, 32)
	if !ok || err != nil || !hmac.Equal([]byte(token), []byte(s.tokenOf(uint32(uid)))) {
		return nil
	}
	return s.userOf(uint32(uid))
}

// wantPermit is the bit of BIND's arg that asks for a permit.
const wantPermit = 1

// permit returns what proves that a program of the user was let bind an address and low port once: its processes may do so again, with
// another node and without the rights that it has given up since.
func (c *channel) permit(r *reply) []byte {
	return c.s.mac("bind", c.user.uid, r.local)
}

// permitted reports whether the value of BIND is a permit for its address.
func (c *channel) permitted(q *request) bool {
	return len(q.value) == macSize && hmac.Equal(q.value, c.s.mac("bind", c.user.uid, q.addr))
}

// instanceOf is the value of a reply to NAMES: which run of a node has answered. A listener of another one has ended with that.
func (s *Server) instanceOf() []byte { return order.AppendUint32(nil, s.process) }

// newInstance returns the number of a run of a node.
func newInstance() uint32 {
	var b [4]byte
	for bytes.Equal(b[:], make([]byte, 4)) {
		_, _ = rand.Read(b[:]) // it does not fail
	}
	return order.Uint32(b[:])
}
