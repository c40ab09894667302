package control_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	pcapng "github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/l4/inspection"
	"github.com/millrace/millrace/wire"
)

// inspectionConfig inspects the services of siteConfig; %s is the mode.
const inspectionConfig = `
inspection:
  variables: ["HOME_NET=[198.18.0.0/15,2001:db8::/32]"]
  alerts: {file: alerts.json}
  packets: {file: alerts.pcapng}
  policies:
    - {name: all, mode: %s, rules: live.rules, access: live.access, capture: "tcp port 80 and tcp[tcpflags] & tcp-syn != 0"}
`

const liveRules = `
drop tcp any any -> $HOME_NET any (msg:"secret path"; content:"/secret"; classtype:test; priority:1; sid:1; rev:3;)
reject tcp any any -> $HOME_NET any (msg:"rejected path"; content:"/rejected"; sid:2;)
alert http any any -> any any (msg:"curl"; http.user_agent; content:"curl/"; threshold:type limit, track by_src, count 1, seconds 600; sid:3;)
drop tcp any any -> any any (msg:"cut by segments"; flow:established,to_server; content:"needle-in-two"; sid:4;)
drop http any any -> any any (msg:"answer"; flow:to_client; file.data; content:"b1 198.18.0.2"; sid:5;)
drop udp any any -> any any (msg:"datagram"; content:"forbidden"; sid:6;)
`

const liveAccess = "drop udp from 198.18.0.2 port 4444 to any port 53 name \"port 4444\"\n"

// newInspected is newSite with inspection.
func newInspected(t *testing.T, prefix, driver, mode string) *site {
	t.Helper()
	s, _ := layOut(t, prefix)
	for i := range s.backends {
		s.listen(i)
	}
	s.rules(liveRules)
	s.must(os.WriteFile(s.beside("live.access"), []byte(liveAccess), 0o644))
	s.must(os.WriteFile(s.file, fmt.Appendf(nil, siteConfig+inspectionConfig, driver, "", mode), 0o644))
	s.start("http://198.18.1.1/", "http://[2001:db8:1::1]/")
	return s
}

func (s *site) beside(name string) string { return filepath.Join(filepath.Dir(s.file), name) }

func (s *site) rules(text string) {
	s.t.Helper()
	s.must(os.WriteFile(s.beside("live.rules"), []byte(text), 0o644))
}

// alerts returns the alerts of the file.
func (s *site) alerts(name string) (list []inspection.Alert) {
	s.t.Helper()
	text, err := os.ReadFile(s.beside(name))
	s.must(err)
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var a inspection.Alert
		switch err := d.Decode(&a); err {
		case nil:
			list = append(list, a)
		case io.EOF, io.ErrUnexpectedEOF: // it is being written
			return list
		default:
			s.t.Fatalf("%v in %s", err, text)
		}
	}
}

// alerted waits for an alert of a rule.
func (s *site) alerted(sid uint32, action string) inspection.Alert {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, a := range s.alerts("alerts.json") {
			if a.Rule != nil && a.Rule.SID == sid && a.Action == action {
				return a
			}
		}
	}
	s.t.Fatalf("no alert of rule %d with action %s: %+v", sid, action, s.alerts("alerts.json"))
	return inspection.Alert{}
}

func TestInspectionDetects(t *testing.T) {
	t.Parallel()
	s := newInspected(t, "mr-gwdet", "afpacket", "detect")
	s.served("http://198.18.1.1/secret?x=1", 10*time.Second)
	a := s.alerted(1, "alert")
	if a.Event != "alert" || a.Policy != "all" || a.Service != "web" || a.Src.String() != "198.18.0.2" || a.Dst.String() != "198.18.1.1" ||
		a.DstPort != 80 || a.Rule.Rev != 3 || a.Rule.Msg != "secret path" || a.Rule.Priority != 1 || a.Rule.Action != "drop" ||
		a.Direction != "to_server" || !strings.Contains(a.Text, "GET /secret?x=1") {
		t.Errorf("alert %+v", a)
	}
	s.alerted(3, "alert")
	sum := s.stop()
	if n := sum.Dropped["inspection"]; n != 0 {
		t.Errorf("%d packets dropped by `detect`", n)
	}
	s.captured("alerts.pcapng")
}

// captured checks that the packets of the policy's expression are in the file, and no others with its comment.
func (s *site) captured(name string) {
	s.t.Helper()
	r, err := pcapng.Open(s.beside(name))
	s.must(err)
	defer r.Close()
	syn, answers := 0, 0
	for {
		rec, err := r.Next()
		if err != nil {
			break
		}
		if string(rec.Meta.Comment) != "all capture" {
			continue
		}
		ip := wire.IPv4(rec.Data[wire.EthernetLen:])
		tcp := wire.TCP(ip.Payload())
		switch {
		case tcp.Flags()&wire.FlagSYN == 0 || tcp.SrcPort() != 80 && tcp.DstPort() != 80:
			s.t.Errorf("captured: %x", rec.Data)
		case tcp.Flags()&wire.FlagACK != 0:
			answers++
		default:
			syn++
		}
	}
	if syn == 0 || answers == 0 {
		s.t.Errorf("%d SYN and %d answers captured", syn, answers)
	}
}

func TestInspectionPrevents(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"afpacket", "afxdp"} {
		t.Run(driver, func(t *testing.T) {
			s := newInspected(t, "mr-gwprev", driver, "prevent")
			s.prevented(t)
		})
	}
}

func (s *site) prevented(t *testing.T) {
	for _, url := range []string{"http://198.18.1.1/secret", "http://[2001:db8:1::1]/secret"} {
		if out, err := s.client.Run("curl", "-sS", "-m", "0.4", url); err == nil {
			t.Fatalf("%s is served: %s", url, out)
		}
	}
	s.alerted(1, "drop")
	if out, err := s.client.Run("curl", "-sS", "-m", "30", "http://198.18.1.1/rejected"); err == nil || !strings.Contains(string(out), "reset") {
		t.Fatalf("the path that is rejected: %s, %v", out, err)
	}
	s.alerted(2, "reject")
	c := s.dial("tcp", "198.18.1.1:80")
	io.WriteString(c, "GET /needle-")
	time.Sleep(50 * time.Millisecond)
	io.WriteString(c, "in-two HTTP/1.0\r\n\r\n")
	c.SetDeadline(time.Now().Add(400 * time.Millisecond))
	if b, err := io.ReadAll(c); err == nil || len(b) > 0 {
		t.Fatalf("a path cut by segments is served: %q, %v", b, err)
	}
	s.alerted(4, "drop")
	if out, err := s.client.Run("curl", "-sS", "-m", "0.4", "http://198.18.1.1:81/"); err == nil {
		t.Fatalf("an answer that a rule drops came: %s", out)
	}
	s.alerted(5, "drop")
	u := s.dial("udp", "198.18.1.1:53")
	u.SetDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 100)
	io.WriteString(u, "allowed")
	if n, err := u.Read(b); err != nil || !strings.HasSuffix(string(b[:n]), "allowed") {
		t.Fatalf("datagram: %q, %v", b[:n], err)
	}
	io.WriteString(u, "forbidden")
	io.WriteString(u, "allowed") // of a flow that is blocked
	u.SetDeadline(time.Now().Add(300 * time.Millisecond))
	if n, err := u.Read(b); err == nil {
		t.Fatalf("a datagram of a flow that is blocked came: %q", b[:n])
	}
	s.alerted(6, "drop")
	s.served("http://198.18.1.1/", 10*time.Second) // others go on
	s.rotated(t)
	sum := s.stop()
	if n := sum.Dropped["inspection"]; n < 7 {
		t.Errorf("%d packets dropped by inspection", n)
	}
	if !bytes.Contains(capturedPackets(t, s.beside("alerts.pcapng")), []byte("all drop: 1:1:3 secret path")) {
		t.Error("the capture lacks the packet of rule 1")
	}
}

// Rates, marks and captures of access rules on live traffic: a source is limited, and another one is not.
func TestAccessRulesOnLiveTraffic(t *testing.T) {
	t.Parallel()
	s, _ := layOut(t, "mr-gwaccess")
	for i := range s.backends {
		s.listen(i)
	}
	s.must(s.client.Up("eth0", "198.18.0.3/24"))
	s.rules("")
	s.must(os.WriteFile(s.beside("limited.txt"), []byte("198.18.0.2\n"), 0o644))
	s.must(os.WriteFile(s.beside("live.access"), []byte(`list limited file "limited.txt"
rate 1pps burst 5 per source udp from list limited to any port 53 name "a packet a second"
mark 9 udp from 198.18.0.3
drop capture tcp to any port 80 name "no web"
`), 0o644))
	s.must(os.WriteFile(s.file, fmt.Appendf(nil, siteConfig+inspectionConfig, "afxdp", "", "prevent"), 0o644))
	s.start()
	answered := func(source string, n int) (answers int) {
		var c net.Conn
		s.must(s.client.Do(func() (err error) {
			c, err = (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(source)}}).Dial("udp", "198.18.1.1:53")
			return err
		}))
		defer c.Close()
		b := make([]byte, 100)
		for range n {
			io.WriteString(c, "?")
			c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			if _, err := c.Read(b); err == nil {
				answers++
			}
		}
		return answers
	}
	for end := time.Now().Add(20 * time.Second); answered("198.18.0.3", 1) == 0; {
		if time.Now().After(end) {
			t.Fatal("the service does not answer")
		}
	}
	began := time.Now()
	if n := answered("198.18.0.2", 20); n < 1 || n > 5+int(time.Since(began).Seconds())+1 {
		t.Errorf("%d answers in %v, at a packet a second and a burst of 5", n, time.Since(began))
	}
	if n := answered("198.18.0.3", 20); n < 15 { // a loaded machine may be late
		t.Errorf("%d answers to another source", n)
	}
	if out, err := s.client.Run("curl", "-sS", "-m", "0.3", "http://198.18.1.1/"); err == nil {
		t.Errorf("a service that a rule drops: %s", out)
	}
	s.alerted(1, "drop")
	s.alerted(3, "drop")
	if sum := s.stop(); sum.Dropped["rate_limit"] == 0 || sum.Dropped["rule"] == 0 {
		t.Errorf("dropped %v", sum.Dropped)
	}
	if b := capturedPackets(t, s.beside("alerts.pcapng")); !bytes.Contains(b, []byte("all access:3 no web")) {
		t.Error("the capture lacks the packets of the rule with capture")
	}
}

// rotated moves the file of alerts away, as logrotate does.
func (s *site) rotated(t *testing.T) {
	s.must(os.Rename(s.beside("alerts.json"), s.beside("alerts.json.1")))
	s.rules(strings.Replace(liveRules, "/secret", "/other-secret", 1))
	s.must(s.cmd.Process.Signal(syscall.SIGHUP))
	for end := time.Now().Add(20 * time.Second); !strings.Contains(s.log.String(), "msg=reload error=<nil>"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no reload")
		}
	}
	if out, err := s.client.Run("curl", "-sS", "-m", "0.4", "http://198.18.1.1/other-secret"); err == nil {
		t.Fatalf("the new rule has no effect: %s", out)
	}
	s.alerted(1, "drop")
	s.served("http://198.18.1.1/secret", 10*time.Second)
	if n := len(s.alerts("alerts.json.1")); n == 0 {
		t.Error("no alerts in the rotated file")
	}
}

func capturedPackets(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
