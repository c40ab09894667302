package interop

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/script"
)

// TestPacketdrillSuite runs the scripts that come with packetdrill (gtests/net/tcp of its repository; `make packetdrill`
// fetches them). They were written for Linux: unsupported names those that cannot pass here, with the reason, and one
// of them that passes is a failure too.
func TestPacketdrillSuite(t *testing.T) {
	dir := os.Getenv("MILLRACE_PACKETDRILL")
	if dir == "" {
		t.Skip("MILLRACE_PACKETDRILL names no folder of scripts; make packetdrill fetches them")
	}
	ran := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".pkt" {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		ran++
		t.Run(strings.TrimSuffix(rel, ".pkt"), func(t *testing.T) { runPacketdrill(t, path, reasonFor(rel)) })
		return nil
	})
	if err != nil || ran < 100 {
		t.Fatalf("%d scripts in %s: %v", ran, dir, err)
	}
}

// runPacketdrill runs one script, which must fail if there is a reason for that.
func runPacketdrill(t *testing.T, path, reason string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	s, err := script.Parse(filepath.Base(path), translate(string(text)))
	if err == nil {
		err = s.Run(&log)
	}
	switch {
	case err == nil && reason != "":
		t.Errorf("it passes, and is listed as one that cannot: %s", reason)
	case err != nil && reason == "":
		t.Errorf("%v\n%s", err, log.String())
	case err != nil:
		t.Skipf("%s (%v)", reason, err)
	}
}

var (
	commandAlone = regexp.MustCompile("(?m)^[ \t]*`([^`]*)`")
	commandTimed = regexp.MustCompile("(?m)^([ \t]*[+0-9.*~]+[ \t]*)`([^`]*)`")
	machine      = regexp.MustCompile(`(?m)^--(local_ip|remote_ip|tcp_ts_tick_usecs|tcp_ts_ecr_scaled|strict_segments|mss)\b.*$`)
	code         = regexp.MustCompile(`(?s)%\{.*?\}%`)
	notAsserted  = regexp.MustCompile(`(?m)#.*$|\bprint\b[^;\n}]*;?|^[ \t%{]*[A-Z_]+ = .*$|\\$`)
	assignment   = regexp.MustCompile(`net[./]ipv4[./]([a-z0-9_]+)="?([^\s"\\]+)`)
)

// sysctls are those that package script knows; the others tune what is not compared.
var sysctls = map[string]bool{
	"tcp_congestion_control": true, "tcp_timestamps": true, "tcp_sack": true, "tcp_window_scaling": true, "tcp_ecn": true,
	"tcp_mtu_probing": true, "tcp_fastopen": true,
}

// linuxCookie is the Fast Open cookie that Linux derives from the key and addresses of the suite.
const linuxCookie = "3021b9d889017eeb"

// translate has a script of packetdrill say what package script understands: commands that set up a Linux machine
// become the sysctls among them. A line is added in front.
func translate(text string) string {
	text = machine.ReplaceAllString(text, "")
	text = code.ReplaceAllStringFunc(text, func(s string) string {
		body := notAsserted.ReplaceAllString(strings.TrimSuffix(strings.TrimPrefix(s, "%{"), "}%"), "")
		if !strings.Contains(body, "assert") {
			body = "assert 1" + body
		}
		return "%{" + body + "}%"
	})
	text = strings.NewReplacer("TFO_COOKIE", "last", linuxCookie, "last", "FOEXP", "opt 254 f989").Replace(text)
	text = commandTimed.ReplaceAllStringFunc(text, func(s string) string {
		m := commandTimed.FindStringSubmatch(s)
		return m[1] + "`sysctl" + settings(m[2]) + "`" + lines(m[2])
	})
	text = commandAlone.ReplaceAllStringFunc(text, func(s string) string {
		m := commandAlone.FindStringSubmatch(s)
		if set := settings(m[1]); set != "" {
			return "+0 `sysctl" + set + "`" + lines(m[1])
		}
		return lines(m[1])
	})
	return "--upstream=1\n" + text
}

// settings are the sysctls that a command sets, as arguments of sysctl(8).
func settings(command string) (args string) {
	if strings.Contains(command, "defaults.sh") {
		args = " net.ipv4.tcp_congestion_control=cubic net.ipv4.tcp_ecn=0 net.ipv4.tcp_fastopen=0x70403"
	}
	for _, m := range assignment.FindAllStringSubmatch(command, -1) {
		if sysctls[m[1]] {
			args += " net.ipv4." + m[1] + "=" + m[2]
		}
	}
	return args
}

// lines keeps the numbers of the lines after a command.
func lines(command string) string { return strings.Repeat("\n", strings.Count(command, "\n")) }

// reasonFor says why a script cannot pass; "" where it must.
func reasonFor(name string) string {
	for _, u := range unsupported {
		if strings.HasPrefix(name, u.prefix) {
			return u.reason
		}
	}
	return ""
}

// unsupported are the scripts that cannot pass, by the beginning of their paths.
var unsupported = []struct{ prefix, reason string }{
	{"zerocopy/", "MSG_ZEROCOPY, which has no counterpart: sending lends memory by other calls"},
}
