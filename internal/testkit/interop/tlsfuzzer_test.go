package interop

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// notOfFuzzer are the scripts of tlsfuzzer that are not run: those that compare times, and those that connect until a secret
// begins with zeros, which with X25519 is never in a script for other curves.
var notOfFuzzer = regexp.MustCompile(`timing|marvin|minerva|lucky13|shared-secret-padding`)

// The suites of the servers are all that crypto/tls has: most scripts for TLS 1.2 ask for a CBC suite, unless they are told another.
const fuzzerSuite = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"

// fuzzerDifferences are the conversations that crypto/tls alone passes, with the reason.
var fuzzerDifferences = map[string]string{
	// RFC 8446 4.6.3: before the next data, and once for several requests. BoGo wants that (KeyUpdate-Requested), and crypto/tls fails it.
	"app data split, conversation with KeyUpdate msg": "the script waits for the reply to a KeyUpdate before it sends what the server is to answer",
}

// TestTLSFuzzer runs tlsfuzzer's scripts for servers against crypto/tls and against the HTTPS listener of a gateway with the same
// Config. What crypto/tls passes the gateway must pass. MILLRACE_TLSFUZZER names a checkout, MILLRACE_TLSFUZZER_PYTHON a
// Python that has tlslite-ng (`make tlsfuzzer`). Of each script so many conversations are run as MILLRACE_TLSFUZZER_LIMIT says,
// the same ones of both servers, 0 for all. MILLRACE_TLSFUZZER_SKIP leaves out scripts, and one that needs more than
// MILLRACE_TLSFUZZER_TIME with one server is not compared: ML-DSA in Python takes hours.
func TestTLSFuzzer(t *testing.T) {
	f := &tlsFuzzer{dir: os.Getenv("MILLRACE_TLSFUZZER"), python: os.Getenv("MILLRACE_TLSFUZZER_PYTHON"), limit: "60", slots: make(chan struct{}, 4)}
	if f.dir == "" || f.python == "" {
		t.Skip("MILLRACE_TLSFUZZER names no checkout of tlsfuzzer; make tlsfuzzer fetches it")
	}
	if n := os.Getenv("MILLRACE_TLSFUZZER_LIMIT"); n != "" {
		f.limit = n
	}
	f.only = regexp.MustCompile(os.Getenv("MILLRACE_TLSFUZZER_ONLY"))
	if skip := os.Getenv("MILLRACE_TLSFUZZER_SKIP"); skip != "" {
		f.skip = regexp.MustCompile(skip)
	}
	f.time = 30 * time.Minute
	if d, err := time.ParseDuration(os.Getenv("MILLRACE_TLSFUZZER_TIME")); err == nil {
		f.time = d
	}
	for _, auth := range []tls.ClientAuthType{tls.NoClientCert, tls.RequestClientCert} {
		f.standard[auth], f.gateways[auth] = fuzzedServers(t, f.dir, auth)
	}
	scripts, err := filepath.Glob(filepath.Join(f.dir, "scripts/test-*.py"))
	if err != nil || len(scripts) < 100 {
		t.Fatalf("%d scripts, %v", len(scripts), err)
	}
	t.Run("scripts", func(t *testing.T) {
		for _, s := range scripts {
			for _, c := range f.runsOf(t, filepath.Base(s)) {
				t.Run(c.String(), func(t *testing.T) { t.Parallel(); f.compare(t, c) })
			}
		}
	})
	f.summary(t)
}

// tlsFuzzer is the suite and the servers, by whether they ask for a client's certificate.
type tlsFuzzer struct {
	dir, python, limit string
	only, skip         *regexp.Regexp // scripts that run, and those that do not
	time               time.Duration  // of a script, at most
	standard           [2]netip.AddrPort
	gateways           [2]*testGateway
	slots              chan struct{} // scripts that may run at a time

	mu      sync.Mutex
	results []fuzzerResult
}

// fuzzerRun is a script with its arguments.
type fuzzerRun struct {
	script string
	args   []string
	auth   tls.ClientAuthType
	x25519 bool // in the place of P-256
	all    bool // the script knows no limit
}

func (c fuzzerRun) String() string {
	name := strings.TrimSuffix(c.script, ".py")
	if c.x25519 {
		name += " x25519"
	}
	return strings.Join(append([]string{strings.TrimPrefix(name, "test-")}, c.args...), " ")
}

// fuzzerResult is what a script has found in both servers.
type fuzzerResult struct {
	run               fuzzerRun
	total             int
	standard, gateway []string // conversations that fail
	only              []string // that fail with the gateway alone
	err               string   // why the script did not run
}

// takesLimit finds the option in what a script knows; some have code for it that nothing reaches.
var takesLimit = regexp.MustCompile(`getopt\.getopt\(\s*argv, "[^"]*n:`)

// runsOf returns the runs of a script: as it is; with a suite whose records the engine encrypts itself, where it can be told one; and
// those of TLS 1.3 with the group of the engine's own handshakes too.
func (f *tlsFuzzer) runsOf(t *testing.T, script string) (list []fuzzerRun) {
	if notOfFuzzer.MatchString(script) || !f.only.MatchString(script) || f.skip != nil && f.skip.MatchString(script) {
		return nil
	}
	name := strings.ReplaceAll(strings.TrimSuffix(script, ".py"), "-", "_") + ".py"
	source, err := os.ReadFile(filepath.Join(f.dir, "tlsfuzzer/_apps", name))
	if err != nil {
		t.Fatal(err)
	}
	c := fuzzerRun{script: script, all: !takesLimit.Match(source)}
	if bytes.Contains(source, []byte("opt == '-k'")) {
		c.auth, c.args = tls.RequestClientCert, clientOf(script)
	}
	list = append(list, c)
	switch tls13 := strings.Contains(script, "tls13"); {
	case tls13 && bytes.Contains(source, []byte("GroupName.secp256r1")):
		c.x25519 = true
		list = append(list, c)
	case !tls13 && bytes.Contains(source, []byte("opt == '-C'")):
		c.args = append(slices.Clone(c.args), "-C", fuzzerSuite)
		list = append(list, c)
	}
	return list
}

// clientOf returns the arguments for a certificate of the kind that a script is about. Those of servers do for clients.
func clientOf(script string) []string {
	name := "clientX509"
	for kind, of := range map[string]string{
		"-ecdsa-in": "serverEC", "-ecdsa-brainpool": "serverBrainpoolP256r1EC", "-eddsa": "serverEd25519", "-mldsa": "serverMldsa65", "-dsa": "clientDSA",
	} {
		if strings.Contains(script, kind) {
			name = of
		}
	}
	return []string{"-k", "tests/" + name + "Key.pem", "-c", "tests/" + name + "Cert.pem"}
}

// compare runs a script against both servers. What fails with the gateway alone is run again, twice: a script waits for
// answers by the clock.
func (f *tlsFuzzer) compare(t *testing.T, c fuzzerRun) {
	f.slots <- struct{}{}
	defer func() { <-f.slots }()
	r := fuzzerResult{run: c}
	var err error
	if r.total, r.standard, err = f.script(c, f.standard[c.auth]); err == nil {
		_, r.gateway, err = f.script(c, f.gateways[c.auth].secure.Address)
	}
	if err != nil {
		r.err = err.Error()
	}
	r.only = without(r.gateway, r.standard)
	for range 2 {
		if len(r.only) == 0 {
			break
		}
		_, standard, err := f.script(c, f.standard[c.auth], r.only...)
		_, gateway, again := f.script(c, f.gateways[c.auth].secure.Address, r.only...)
		if err != nil || again != nil {
			t.Fatal(err, again)
		}
		r.only = without(gateway, standard)
	}
	for _, name := range r.only {
		if reason := fuzzerDifferences[name]; reason != "" {
			t.Logf("%q differs: %s", name, reason)
			continue
		}
		t.Errorf("crypto/tls passes %q, the gateway does not", name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.results = append(f.results, r)
}

// without returns the elements of a that b lacks, once each.
func without(a, b []string) (list []string) {
	for _, s := range a {
		if !slices.Contains(b, s) && !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// A script chooses its conversations at random: with this they are the same for both servers.
const seeded = `import random, runpy, sys
from tlslite.constants import GroupName
if sys.argv[1] == "x25519":
    GroupName.secp256r1 = GroupName.x25519
del sys.argv[1]
random.seed(1)
sys.argv = sys.argv[1:]
sys.path.insert(0, ".")
runpy.run_path(sys.argv[0], run_name="__main__")`

var (
	fuzzerTotal  = regexp.MustCompile(`(?m)^TOTAL: (\d+)`)
	fuzzerFailed = regexp.MustCompile(`(?ms)^FAILED:\n(.*)\z`)
)

// script runs a script, or some of its conversations, and returns how many it has run and which have failed.
func (f *tlsFuzzer) script(c fuzzerRun, addr netip.AddrPort, only ...string) (total int, failed []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), f.time)
	defer cancel()
	group := "secp256r1"
	if c.x25519 {
		group = "x25519"
	}
	args := append([]string{"-c", seeded, group, "scripts/" + c.script, "-h", addr.Addr().String(), "-p", strconv.Itoa(int(addr.Port()))}, c.args...)
	if !c.all {
		args = append(args, "-n", f.limit)
	}
	cmd := exec.CommandContext(ctx, f.python, append(args, only...)...)
	cmd.Dir, cmd.Env = f.dir, append(os.Environ(), "PYTHONHASHSEED=0", "PYTHONDONTWRITEBYTECODE=1")
	out, runErr := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return 0, nil, fmt.Errorf("not over after %v", f.time)
	}
	m := fuzzerTotal.FindSubmatch(out)
	if m == nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return 0, nil, fmt.Errorf("%v: %s", runErr, lines[len(lines)-1])
	}
	total, _ = strconv.Atoi(string(m[1])) // digits
	if m := fuzzerFailed.FindSubmatch(out); m != nil {
		for line := range strings.Lines(string(m[1])) {
			if line = strings.TrimSpace(line); len(line) > 2 {
				failed = append(failed, line[1:len(line)-1])
			}
		}
	}
	if runErr != nil && len(failed) == 0 && !bytes.Contains(out, []byte("XPASSED")) {
		return 0, nil, fmt.Errorf("%v without a conversation that fails", runErr)
	}
	return total, failed, nil
}

// summary logs how both servers have done, for docs/tls.md.
func (f *tlsFuzzer) summary(t *testing.T) {
	slices.SortFunc(f.results, func(a, b fuzzerResult) int { return strings.Compare(a.run.String(), b.run.String()) })
	scripts, ran, total, standard, gateway := map[string]bool{}, 0, 0, 0, 0
	for i := range f.results {
		r := &f.results[i]
		if r.err != "" {
			t.Logf("not run: %v: %s", r.run, r.err)
			continue
		}
		scripts[r.run.script] = true
		ran++
		total, standard, gateway = total+r.total, standard+r.total-len(r.standard), gateway+r.total-len(r.gateway)
		if better := without(r.standard, r.gateway); len(better) > 0 {
			t.Logf("the gateway alone passes: %v: %q", r.run, better)
		}
	}
	t.Logf("%d scripts in %d runs, %d conversations: crypto/tls passes %d, the gateway %d", len(scripts), ran, total, standard, gateway)
	own := f.gateways[tls.NoClientCert].stats().Exchanges
	t.Logf("%d handshakes of the gateway were the engine's own", own)
	if f.only.String() == "" && own < 100 {
		t.Errorf("%d handshakes were the engine's own", own)
	}
	for name := range fuzzerDifferences {
		known := func(r fuzzerResult) bool { return slices.Contains(r.only, name) }
		if f.only.String() == "" && f.limit == "0" && !slices.ContainsFunc(f.results, known) { // a sample may lack it
			t.Errorf("%q differs no more", name)
		}
	}
	if f.only.String() == "" && (len(scripts) < 120 || standard < total/4) {
		t.Errorf("%d scripts ran, crypto/tls passes %d of %d conversations: the suite is not what it was", len(scripts), standard, total)
	}
}

// answerByTLS answers requests by crypto/tls alone, until one says that it is the last. At the end it reads what is left, as the gateway
// does: a reset would take the alert with it. Close of crypto/tls would send a close_notify behind an alert that is fatal.
func answerByTLS(conn net.Conn, config *tls.Config) {
	defer conn.Close()                                 //nolint:errcheck // the connection is over
	conn.SetDeadline(time.Now().Add(20 * time.Second)) //nolint:errcheck // a socket has deadlines
	c, buf, got := tls.Server(conn, config), make([]byte, 4096), []byte(nil)
	for failed := false; !failed; {
		n, err := c.Read(buf)
		got, failed = append(got, buf[:n]...), err != nil
		if !bytes.Contains(got, []byte("\r\n\r\n")) && !bytes.Contains(got, []byte("\n\n")) {
			if err == io.EOF { //nolint:errorlint // crypto/tls returns it as it is
				c.CloseWrite() //nolint:errcheck // the connection ends
			}
			continue
		}
		last := bytes.Contains(got, []byte("HTTP/1.0"))
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nhello\r\n"); err != nil {
			break
		}
		if got = got[:0]; last && !failed {
			c.CloseWrite() //nolint:errcheck // the connection ends
			break
		}
	}
	conn.(*net.TCPConn).CloseWrite() //nolint:errcheck // the same
	io.Copy(io.Discard, conn)        //nolint:errcheck // the same
}

// fuzzedServers serves by crypto/tls and by a gateway, with the same certificate, versions and suites.
func fuzzedServers(t *testing.T, dir string, auth tls.ClientAuthType) (standard netip.AddrPort, g *testGateway) {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "tests/serverX509Cert.pem"), filepath.Join(dir, "tests/serverX509Key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS10, NextProtos: []string{"http/1.1"}, ClientAuth: auth}
	for _, s := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		config.CipherSuites = append(config.CipherSuites, s.ID)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)    //nolint:errcheck // the client may have gone
		io.WriteString(w, "hello\r\n") //nolint:errcheck // the same
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // the test is over
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answerByTLS(c, config)
		}
	}()
	g = newTestGateway(t, serveH2C(t, handler), func(g *testGateway) { g.secure.TLS = config.Clone() })
	return l.Addr().(*net.TCPAddr).AddrPort(), g
}
