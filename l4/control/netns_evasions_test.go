package control_test

//lint:file-ignore SA1019 x/net's HTTP/2 is a peer here: net/http has no extended CONNECT and no Upgrade to h2c

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/evasions"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/wire"
)

// The servers behind the gateway are real ones, and what they have received decides: a row of evasions is blocked where no
// server has its text.

const evasionConfig = `
devices: [{name: front, driver: %s}, {name: back1, driver: %[1]s}, {name: back2, driver: %[1]s}]
snat: [198.18.2.1]
services:
  - {name: udp, protocol: udp, address: 198.18.1.1:53, backends: [{name: b1, address: 198.18.3.2:5353}]}
  - {name: text, address: 198.18.1.1:7000, backends: [{name: b1, address: 198.18.3.2:7000}]}
  - {name: web, address: 198.18.1.1:80, backends: [{name: b1, address: 198.18.3.2:8080}]}
  - {name: nginx, address: 198.18.1.1:90, backends: [{name: b1, address: 198.18.3.2:8090}]}
  - {name: tls, address: 198.18.1.1:443, backends: [{name: b1, address: 198.18.3.2:8443}]}
  - {name: node, address: 198.18.1.1:444, backends: [{name: b1, address: 198.18.3.2:8444}]}
inspection:
  alerts: {file: alerts.json}
  policies: [{name: all, mode: prevent, rules: live.rules}]
`

const evasionRules = `
drop udp any any -> any any (msg:"datagram"; content:"attack at dawn"; sid:1;)
drop tcp any any -> any 7000 (msg:"stream"; flow:established,to_server; content:"attack at dawn"; sid:2;)
drop http any any -> any any (msg:"URI"; flow:to_server; http.uri; content:"/evil"; sid:3;)
drop http any any -> any any (msg:"body"; flow:to_server; http.request_body; content:"evilbody"; sid:4;)
drop tls any any -> any any (msg:"name"; tls.sni; content:"evil.test"; sid:5;)
`

// evasionSite is a site whose servers record what they receive.
type evasionSite struct {
	*site
	mu  sync.Mutex
	got []string
	log string // of nginx
	ssl *testnet.Log
}

func newEvasions(t *testing.T) *evasionSite {
	t.Helper()
	testnet.Program(t, "nginx", "node", "curl")
	s, _ := layOut(t, "mr-gwevade")
	v := &evasionSite{site: s, ssl: &testnet.Log{}}
	s.must(s.backends[0].Do(v.listen))
	v.listenPrograms()
	s.rules(evasionRules)
	s.must(os.WriteFile(s.file, fmt.Appendf(nil, evasionConfig, "afpacket"), 0o644))
	s.start("http://198.18.1.1/ready", "http://198.18.1.1:90/ready")
	return v
}

func (v *evasionSite) record(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.got = append(v.got, text)
}

// received reports whether a server has received a text.
func (v *evasionSite) received(text string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	nginx, _ := os.ReadFile(v.log)
	for _, s := range append(v.got, string(nginx), v.ssl.String()) {
		if strings.Contains(s, text) {
			return true
		}
	}
	return false
}

// listen starts the servers of this process.
func (v *evasionSite) listen() error {
	udp, err := net.ListenPacket("udp4", ":5353")
	if err != nil {
		return err
	}
	v.t.Cleanup(func() { udp.Close() })
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			v.record("udp " + string(b[:n]))
			udp.WriteTo([]byte("got it"), from)
		}
	}()
	if err := testnet.ServeTCP(v.t, ":7000", v.text); err != nil {
		return err
	}
	if err := testnet.ServeTCP(v.t, ":8443", v.tls); err != nil {
		return err
	}
	web, err := net.Listen("tcp", ":8080")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: h2c.NewHandler(http.HandlerFunc(v.web), &http2.Server{})}
	v.t.Cleanup(func() { srv.Close() })
	go srv.Serve(web)
	return nil
}

// text records the text of a connection as it comes, as a server reads it that knows nothing of urgent data.
func (v *evasionSite) text(c net.Conn) {
	var all []byte
	b := make([]byte, 4096)
	for {
		n, err := c.Read(b)
		if n == 0 || err != nil {
			return
		}
		all = append(all, b[:n]...)
		v.record("text " + string(all))
		if bytes.HasSuffix(all, []byte("\n")) {
			io.WriteString(c, "got it")
		}
	}
}

// web records the path and the body of a request, decoded as programs do.
func (v *evasionSite) web(w http.ResponseWriter, r *http.Request) {
	v.record("web " + r.URL.Path)
	body, err := io.ReadAll(r.Body)
	if err == nil && len(body) > 0 {
		v.record("body " + evasions.DecodedBody(r.Header.Get("Content-Encoding"), body))
	}
	io.WriteString(w, "got it")
}

// tls records the server name of a hello.
func (v *evasionSite) tls(c net.Conn) {
	cert, _ := testcert.SelfSigned("a.test")
	s := tls.Server(c, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		v.record("name " + h.ServerName)
		return &tls.Config{Certificates: []tls.Certificate{cert}}, nil
	}})
	s.Handshake()
	io.Copy(io.Discard, s)
}

// listenPrograms starts nginx, and node for a server with OpenSSL.
func (v *evasionSite) listenPrograms() {
	v.t.Helper()
	dir := v.t.TempDir()
	v.must(os.Chmod(dir, 0o755))
	v.log = filepath.Join(dir, "access")
	conf := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log stderr;
events {}
http {
	log_format line 'nginx $request|';
	access_log %[1]s/access line;
	client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	server { listen 8090; location / { return 200 "got it"; } }
}
`, dir)
	v.must(os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(conf), 0o644))
	v.program(nil, "nginx", "-c", filepath.Join(dir, "nginx.conf"))
	cert, _ := testcert.SelfSigned("a.test")
	key, err := x509.MarshalECPrivateKey(cert.PrivateKey.(*ecdsa.PrivateKey))
	v.must(err)
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key})...)
	file := filepath.Join(dir, "cert.pem")
	v.must(os.WriteFile(file, both, 0o600))
	script := fmt.Sprintf(`const tls = require("tls"), pem = require("fs").readFileSync(%q);
tls.createServer({key: pem, cert: pem, SNICallback: (name, done) => { console.log("name " + name); done(null); }}).on("tlsClientError", () => {}).listen(8444);`, file)
	v.program(v.ssl, "node", "-e", script)
}

func (v *evasionSite) program(out io.Writer, name string, args ...string) {
	v.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	v.must(v.backends[0].Start(cmd))
	v.t.Cleanup(func() {
		if cmd.Process.Kill() == nil {
			cmd.Wait()
		}
	})
}

// evasion is a row: what a client sends, and the text that no server may have then.
type evasion struct {
	name string
	at   string // the service's address
	text string // what a server would have
	send func(c *evasionConn)
	// open says that servers take the row, since it is out of reach of inspection (docs/inspection.md).
	open bool
}

// evasionConn is the client's connection of a row, without one for datagrams.
type evasionConn struct {
	*evasions.Conn
	v  *evasionSite
	id uint32
}

func TestEvasionsEndAtTheServer(t *testing.T) {
	t.Parallel()
	v := newEvasions(t)
	alerts := 0
	for i, row := range append(append(fragmentEvasions(), textEvasions()...), httpEvasions()...) {
		c := &evasionConn{v: v, id: uint32(100 + i)}
		if row.at != "" {
			c.Conn = &evasions.Conn{TCPConn: v.dial("tcp", row.at).(*net.TCPConn), T: t, Upgrades: true}
			v.must(c.SetNoDelay(true))
		}

		row.send(c)
		decided := ""
		for end := time.Now().Add(20 * time.Second); decided == "" && time.Now().Before(end); {
			switch {
			case v.received(row.text):
				decided = "received"
			case len(v.alerts("alerts.json")) > alerts:
				decided = "alert"
			case c.Conn != nil:
				c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
				if n, err := c.Read(make([]byte, 4096)); n > 0 || err != nil && !os.IsTimeout(err) {
					decided = "refused by the server"
				}
			default:
				time.Sleep(20 * time.Millisecond)
			}
		}
		if row.at != "" {
			v.honest(row.at, c.id)
		} else {
			v.honest("198.18.1.1:7000", c.id)
		}
		got := v.received(row.text)
		t.Logf("%-45s %s", row.name, decided)
		if decided == "" || got != row.open {
			t.Errorf("%s: %q, a server has %q: %v", row.name, decided, row.text, got)
		}
		alerts = len(v.alerts("alerts.json"))
		if c.Conn != nil {
			c.Close()
		}
	}
	sum := v.stop()
	if sum.Dropped["inspection"] == 0 {
		t.Error("nothing was dropped")
	}
}

// honest has an honest text reach a server, after all that a row has sent.
func (v *evasionSite) honest(at string, id uint32) {
	v.t.Helper()
	c := v.dial("tcp", at).(*net.TCPConn)
	defer c.Close()
	v.must(c.SetDeadline(time.Now().Add(time.Minute)))
	text := fmt.Sprintf("honest-%d", id)
	switch at {
	case "198.18.1.1:443", "198.18.1.1:444":
		tls.Client(c, &tls.Config{ServerName: text + ".test", InsecureSkipVerify: true}).Handshake()
	case "198.18.1.1:7000":
		io.WriteString(c, text+"\n")
	default:
		io.WriteString(c, "GET /"+text+" HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if v.received(text) {
			return
		}
	}
	v.t.Fatalf("an honest text does not reach the server at %s: %s", at, v.ssl)
}

// Fragments in any order and repeated: "a", "b" and "c" are those of a datagram.
func fragmentEvasions() (rows []evasion) {
	const text = "attack at dawn"
	for n, order := range []string{"abc", "abcc", "abccc", "cabb", "bbac", "acbb", "cbaa", "caabb", "abbccab", "bcaabc"} {
		payload := fmt.Sprintf("fragments %02d %s", n, text)
		rows = append(rows, evasion{name: "UDP in fragments " + order, text: payload, send: func(c *evasionConn) {
			src, dst := netip.MustParseAddrPort(fmt.Sprintf("198.18.0.2:%d", 20000+c.id)), netip.MustParseAddrPort("198.18.1.1:53")
			c.pieces(order, control.FragmentsOf(c.v.macs()[0], c.v.macs()[1], src, dst, payload, 16, c.id))
		}})
		stream := fmt.Sprintf("fragments of TCP %02d %s\n", n, text)
		rows = append(rows, evasion{name: "TCP in fragments " + order, text: stream, send: func(c *evasionConn) {
			r := c.v.rawTCP(c.id)
			c.pieces(order, r.fragments(stream, 24, c.id))
		}})
	}
	return rows
}

// pieces sends the fragments that the letters of an order name.
func (c *evasionConn) pieces(order string, list [][]byte) {
	c.v.t.Helper()
	if len(list) < 3 {
		c.v.t.Fatalf("%d fragments", len(list))
	}
	for _, letter := range order {
		at := int(letter - 'a')
		end := at + 1
		if at == 2 {
			end = len(list)
		}
		c.v.sendFrames(list[at:end])
		time.Sleep(2 * time.Millisecond)
	}
}

// macs returns the link addresses of the client and of the gateway's front.
func (v *evasionSite) macs() (list [2][6]byte) {
	for i, text := range []string{v.clientMAC(), v.frontMAC()} {
		mac, err := net.ParseMAC(text)
		v.must(err)
		list[i] = [6]byte(mac)
	}
	return list
}

// rawTCP is a connection of a client that is no kernel: its segments are made here.
type rawTCP struct {
	v        *evasionSite
	port     uint16
	seq, ack uint32
}

const rawClient = "198.18.0.77"

// rawTCP opens a connection to the recorder of texts.
func (v *evasionSite) rawTCP(id uint32) *rawTCP {
	v.t.Helper()
	v.run(v.gate, "ip neigh replace "+rawClient+" lladdr "+v.clientMAC()+" dev front")
	r := &rawTCP{v: v, port: uint16(30000 + id), seq: 1000}
	fd := -1
	v.must(v.client.Do(func() (err error) {
		in, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		const ip = unix.ETH_P_IP<<8&0xff00 | unix.ETH_P_IP>>8
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, ip); err != nil {
			return err
		}
		if err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000}); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: ip, Ifindex: in.Index})
	}))
	defer unix.Close(fd)
	b := make([]byte, 1<<16)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		v.sendFrames([][]byte{r.segment(wire.FlagSYN, "")})
		for range 20 {
			n, _, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				break
			}
			if n < 54 {
				continue
			}
			t := wire.TCP(b[34:n])
			if b[23] == wire.ProtoTCP && t.DstPort() == r.port && t.Flags().Has(wire.FlagSYN|wire.FlagACK) {
				r.seq, r.ack = r.seq+1, t.Seq()+1
				v.sendFrames([][]byte{r.segment(wire.FlagACK, "")})
				return r
			}
		}
	}
	v.t.Fatal("no answer to a SYN")
	return nil
}

// segment makes the next segment.
func (r *rawTCP) segment(flags wire.TCPFlags, payload string) []byte {
	macs := r.v.macs()
	src, dst := netip.MustParseAddr(rawClient).As4(), [4]byte{198, 18, 1, 1}
	h := wire.TCPHeader{SrcPort: r.port, DstPort: 7000, Seq: r.seq, Ack: r.ack, Flags: flags, Window: 65535}
	t := append(wire.AppendTCP(nil, &h), payload...)
	wire.TCP(t).FillChecksum(wire.PseudoHeader4(src, dst, wire.ProtoTCP, uint32(len(t))))
	b := wire.AppendEthernet(nil, macs[1], macs[0], wire.EtherTypeIPv4)
	b = wire.AppendIPv4(b, &wire.IPv4Header{PayloadLen: len(t), TTL: 64, Proto: wire.ProtoTCP, Src: src, Dst: dst})
	return append(b, t...)
}

// fragments makes the next segment in fragments of so many bytes.
func (r *rawTCP) fragments(payload string, size int, id uint32) (list [][]byte) {
	whole := r.segment(wire.FlagACK|wire.FlagPSH, payload)
	data := whole[34:]
	for at := 0; at < len(data); at += size {
		f := append(bytes.Clone(whole[:34]), data[at:min(at+size, len(data))]...)
		ip := wire.IPv4(f[14:])
		ip.SetTotalLen(uint16(len(ip)))
		ip.SetID(uint16(id))
		ip.SetMoreFragments(at+size < len(data))
		ip.SetFragmentOffset(at)
		ip.FillChecksum()
		list = append(list, f)
	}
	return list
}
