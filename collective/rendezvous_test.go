package collective

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testcert"
)

// pairUp connects ranks 0 and 1 of a group with different configurations, and returns both errors.
func pairUp(t *testing.T, change func(cfg *Config)) (zero, one error) {
	t.Helper()
	errs := group(t, 2, func(cfg *Config) {
		cfg.Timeout, cfg.Key, cfg.NoMeasure = 300*time.Millisecond, []byte("key"), true
		change(cfg)
	}, func(c *Comm) error { return c.Barrier() })
	return errs[0], errs[1]
}

func TestWrongRanksDoNotJoin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(cfg *Config)
		want   error
		text   string
	}{
		"key":   {func(cfg *Config) { cfg.Key = []byte{byte(cfg.Rank)} }, ErrKey, "the same key"},
		"size":  {func(cfg *Config) { cfg.Size += cfg.Rank }, ErrRefused, "rank 1 is of a group of 3 ranks, this one of 2"},
		"twice": {func(cfg *Config) { cfg.Rank = 0 }, nil, "cannot listen"},
		"rails": {func(cfg *Config) {
			if cfg.Rank == 1 {
				cfg.Rails = []string{"127.0.0.1", "127.0.0.1"}
			}
		}, ErrConfig, "a rank has"},
		"plain": {func(cfg *Config) {
			if cfg.Rank == 1 {
				cfg.TLS = &tls.Config{}
			}
		}, nil, ""},
	} {
		zero, one := pairUp(t, c.change)
		if zero == nil || one == nil {
			t.Errorf("%s: %v, %v", name, zero, one)
			continue
		}
		if c.want != nil && !errors.Is(one, c.want) || !strings.Contains(zero.Error()+one.Error(), c.text) {
			t.Errorf("%s: rank 0 %v; rank 1 %v", name, zero, one)
		}
	}
}

// TestAThirdRankOneIsRefused has two processes with the same number.
func TestAThirdRankOneIsRefused(t *testing.T) {
	t.Parallel()
	errs := group(t, 3, func(cfg *Config) {
		cfg.Rank, cfg.Timeout = min(cfg.Rank, 1), 300*time.Millisecond
	}, func(c *Comm) error { return c.Barrier() })
	if err := errors.Join(errs[1], errs[2]); err == nil || !strings.Contains(err.Error(), "there is a rank 1 already") {
		t.Error(errs)
	}
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "ranks 2 are missing") && !strings.Contains(errs[0].Error(), "not all of 3 ranks") {
		t.Error(errs[0])
	}
}

func TestConfigurationsThatCannotBe(t *testing.T) {
	for _, cfg := range []Config{
		{},
		{Size: 2, Rank: 2, Address: "127.0.0.1:1"},
		{Size: 2, Rank: -1, Address: "127.0.0.1:1"},
		{Size: MaxSize + 1, Address: "127.0.0.1:1"},
		{Size: 2, Address: "nowhere"},
		{Size: 2, Address: "192.0.2.1:7400"}, // no key
		{Size: 2, Address: "0.0.0.0:7400"},
		{Size: 2, Address: "127.0.0.1:1", Timeout: -1},
		{Size: 2, Address: "127.0.0.1:1", Rails: make([]string, maxRails+1)},
	} {
		if _, err := Connect(t.Context(), cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func TestRanksMayBeEncrypted(t *testing.T) {
	cert, pool := testcert.SelfSigned("rank", net.IPv4(127, 0, 0, 1))
	zero, one := pairUp(t, func(cfg *Config) {
		cfg.Timeout = 10 * time.Second
		cfg.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool}
	})
	if zero != nil || one != nil {
		t.Error(zero, one)
	}
}

// ends returns both ends of a connection whose server does welcome.
func ends(t *testing.T, key []byte) (client net.Conn, served chan error) {
	t.Helper()
	client, server := net.Pipe()
	served = make(chan error, 1)
	go func() {
		_, err := welcome(server, key, func(*hello) error { return nil })
		served <- err
		server.Close()
	}()
	t.Cleanup(func() { client.Close() })
	return client, served
}

// TestProofsCannotBeReflected has a client without the key that answers with what the server has sent.
func TestProofsCannotBeReflected(t *testing.T) {
	client, served := ends(t, []byte("key"))
	h := hello{purpose: purposeJoin, size: 2, rank: 1}
	_, _ = client.Write(h.bytes())
	challenge := make([]byte, challengeSize)
	if _, err := io.ReadFull(client, challenge); err != nil {
		t.Fatal(err)
	}
	_, _ = client.Write(challenge[challengeSize-sha256.Size:])
	if err := <-served; !errors.Is(err, ErrKey) {
		t.Error(err)
	}
}

func TestOtherVersionsAreNamed(t *testing.T) {
	client, served := ends(t, nil)
	b := (&hello{purpose: purposeJoin}).bytes()
	b[5]++
	_, _ = client.Write(b)
	challenge := make([]byte, challengeSize)
	if _, err := io.ReadFull(client, challenge); err != nil || parsePrefix(challenge) != nil {
		t.Error("the server does not answer with its version")
	}
	if err := <-served; !errors.Is(err, ErrVersion) {
		t.Error(err)
	}
	challenge[5]++
	server, client := net.Pipe()
	go func() {
		_, _ = io.ReadFull(server, make([]byte, helloSize))
		_, _ = server.Write(challenge[:8])
	}()
	if err := greet(client, hello{}, nil); !errors.Is(err, ErrVersion) {
		t.Error(err)
	}
	go func() {
		_, _ = io.ReadFull(server, make([]byte, helloSize))
		_, _ = server.Write([]byte("HTTP/1.1 400 Bad Request\r\n"))
	}()
	if err := greet(client, hello{}, nil); !errors.Is(err, ErrNotMillrace) {
		t.Error(err)
	}
}

// scripted is a connection that reads given bytes.
type scripted struct {
	net.Conn
	in io.Reader
}

func (s scripted) Read(p []byte) (int, error)     { return s.in.Read(p) }
func (scripted) Write(p []byte) (int, error)      { return len(p), nil }
func (scripted) SetDeadline(time.Time) error      { return nil }
func (scripted) SetWriteDeadline(time.Time) error { return nil }

func FuzzHandshake(f *testing.F) {
	f.Add((&hello{purpose: purposeJoin, rank: 1, size: 2}).bytes())
	f.Add(append((&hello{purpose: purposeData}).bytes(), make([]byte, sha256.Size)...))
	f.Add((&hello{purpose: 9}).bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHello(b); err == nil && !bytes.Equal(h.bytes(), b) {
			t.Errorf("%x becomes %x", b, h.bytes())
		}
		if _, err := welcome(scripted{in: bytes.NewReader(b)}, []byte("key"), func(*hello) error { return nil }); err == nil {
			t.Error("bytes without the key are welcome")
		}
		if greet(scripted{in: bytes.NewReader(b)}, hello{}, []byte("key")) == nil {
			t.Error("a server without the key is greeted")
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 3, byte(frameJoin), '{', '}'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{0, 0, 0, 1, byte(frameBye)})
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, body, err := readFrame(bytes.NewReader(b))
		if err != nil {
			return
		}
		if len(body) > len(b)-5 || kind < frameJoin || kind > frameBye {
			t.Errorf("frame %d of %d bytes in %d", kind, len(body), len(b))
		}
		c := &coordinator{conns: []*frameConn{{conn: scripted{}}, {conn: scripted{}}}, gone: make([]bool, 2), left: make([]bool, 2), compared: map[operation]map[int]compareFrame{}, idle: make(chan struct{})}
		c.handle(event{1, kind, body}) // whatever it is, it does not end the coordinator
		if c.state == investigating {
			c.decide(c.judge())
		}
	})
}

// TestConnectEndsWithItsContext does not wait for the time-out.
func TestConnectEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := Connect(ctx, Config{Size: 2, Address: free(t)}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := Connect(ctx, Config{Size: 2, Rank: 1, Address: free(t)}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
