package shim

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// next replaces the node of a bed by another one at the same path.
func (b *bed) next(t *testing.T, change func(*Config)) {
	t.Helper()
	cfg := b.cfg
	if change != nil {
		change(&cfg)
	}
	if err := b.Server.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	b.Server = s
}

// TestTokensOutlastTheNode: a process without rights of its own is let in by the token of a node of before, but not once the configuration
// lets in others.
func TestTokensOutlastTheNode(t *testing.T) {
	b := newBed(t, nil)
	n, err := Hello(b.cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("MILLRACE_SHIM_TOKEN", n.Token)
	b.next(t, nil)
	b.distrust()
	if again, err := Hello(b.cfg.Path); err != nil || again.Token != n.Token {
		t.Errorf("%+v, %v, want the token %s", again, err, n.Token)
	}
	b.next(t, func(c *Config) { c.Groups = []uint32{70001} })
	b.distrust()
	if _, err := Hello(b.cfg.Path); !errors.Is(err, syscall.EACCES) {
		t.Errorf("with other groups: %v", err)
	}
}

// TestSecretFile: a file that another user may know is no secret.
func TestSecretFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	first := openSecret(path)
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 || !bytes.Equal(openSecret(path), first) {
		t.Fatalf("%v, %v", info, err)
	}
	known := bytes.Repeat([]byte{1}, secretSize)
	for what, spoil := range map[string]func() error{
		"others may read it":  func() error { return os.Chmod(path, 0o644) },
		"it has another name": func() error { return os.Link(path, path+"2") },
		"it is a link":        func() error { return errors.Join(os.Rename(path, path+"3"), os.Symlink(path+"3", path)) },
		"it is a pipe":        func() error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) },
		"it is another user's": func() error {
			if os.Geteuid() != 0 {
				return os.Remove(path)
			}
			return os.Chown(path, 70001, 70001)
		},
	} {
		_ = os.RemoveAll(filepath.Dir(path))
		if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(path, known, 0o600)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(openSecret(path), known) {
			t.Fatal("a good one is not used")
		}
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if got := openSecret(path); bytes.Equal(got, known) || len(got) != secretSize {
			t.Errorf("%s: it is used", what)
		}
	}
	if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte("short"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := openSecret(path); !bytes.Equal(openSecret(path), got) {
		t.Error("a short one is not replaced")
	}
}

// TestPermit: what a node has let a user bind, the next one lets it bind without rights: that address and port, and that user.
func TestPermit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it takes rights to bind a low port")
	}
	b := newBed(t, nil)
	bind := func(token, at string, arg int32, permit []byte) reply {
		t.Helper()
		p := b.as(t, token).socket(unix.SOCK_STREAM, false)
		defer p.close()
		return p.ask(request{op: opBind, addr: netip.MustParseAddrPort(at), arg: arg, value: permit}, p.fd)
	}
	_, mine := b.another(70001)
	_, others := b.another(70002)
	at := nodeAddr + ":80"
	first := bind(mine, at, wantPermit, nil)
	if first.errno != 0 || len(first.value) != macSize {
		t.Fatalf("%+v", first)
	}
	permit := bytes.Clone(first.value)
	if r := bind(mine, at, 0, nil); r.errno != 0 || len(r.value) != 0 {
		t.Errorf("without asking for one: %+v", r)
	}
	b.next(t, nil)
	b.mayBindLowPorts = func(*channel) bool { return false }
	for _, tc := range []struct {
		what, token, at string
		permit          []byte
		want            syscall.Errno
	}{
		{"with the permit", mine, at, permit, 0},
		{"without", mine, at, nil, syscall.EACCES},
		{"of another user", others, at, permit, syscall.EACCES},
		{"of another port", mine, nodeAddr + ":81", permit, syscall.EACCES},
		{"of another address", mine, "0.0.0.0:80", permit, syscall.EACCES},
		{"cut off", mine, at, permit[:macSize-1], syscall.EACCES},
	} {
		if r := bind(tc.token, tc.at, 0, tc.permit); r.errno != tc.want {
			t.Errorf("%s: %v, want %v", tc.what, r.errno, tc.want)
		}
	}
}

// TestInstance: NAMES has the number of the run of the node, also for a socket of the one before.
func TestInstance(t *testing.T) {
	b := newBed(t, nil)
	p := b.dial(t).socket(unix.SOCK_STREAM, false)
	if _, err := p.listen(nodeAddr+":7001", 5); err != nil {
		t.Fatal(err)
	}
	n, err := p.name()
	if r := p.ask(request{op: opNames}, p.fd); err != nil || len(r.value) != 4 || order.Uint32(r.value) != n.process {
		t.Fatalf("%v, %+v, want %d", err, r, n.process)
	}
	b.next(t, nil)
	if r := b.dial(t).ask(request{op: opNames}, p.fd); r.errno != 0 || len(r.value) != 4 || order.Uint32(r.value) == n.process {
		t.Errorf("%+v, of the one before %d", r, n.process)
	}
}
