package programs

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const python = "/usr/bin/python3"

// module is one of CPython's own, with the tests that run.
type module struct {
	name, tests, resources string
}

// pythonModules are those of the rows, without tests of what has no sockets.
var pythonModules = []struct {
	row     string
	modules []module
}{
	{"CPython socket", []module{
		{"test_socket", `^(?!.*VSOCK)`, ""}, // a VSOCK test never ends on a machine without a hypervisor's host
		{"test_select", "", ""},
		{"test_poll", "", ""},
		{"test_epoll", "", ""},
		{"test_selectors", "", ""},
		{"test_socketserver", "", "network"},
		{"test_asyncore", "", ""},
		{"test_asynchat", "", ""},
		{"test_logging", "Socket|Datagram|SysLog|SMTP|HTTP", ""},
	}},
	{"CPython ssl", []module{{"test_ssl", "", ""}}},
	{"CPython asyncio", []module{{"test_asyncio", "", ""}}},
	{"CPython protocols", []module{
		{"test_httplib", "", ""},
		{"test_httpservers", "", ""},
		{"test_ftplib", "", ""},
		{"test_smtplib", "", ""},
		{"test_smtpd", "", ""},
		{"test_poplib", "", ""},
		{"test_imaplib", "", ""},
		{"test_nntplib", "", ""},
		{"test_telnetlib", "", ""},
		{"test_urllib2_localnet", "", ""},
		{"test_xmlrpc", "", ""},
		{"test_docxmlrpc", "", ""},
		{"test_wsgiref", "", ""},
	}},
	{"CPython multiprocessing", []module{
		{"test_multiprocessing_fork", "Connection|Listener|Poll|Remote|Wait|Auth|Family|OtherTest", ""},
		{"test_multiprocessing_spawn", "Connection|Listener|Poll|Remote|Wait|Auth|Family|OtherTest", ""},
	}},
}

// pythonPrograms are CPython's own tests.
func pythonPrograms() (list []program) {
	for _, r := range pythonModules {
		var parts []string
		for _, m := range r.modules {
			parts = append(parts, m.name)
		}
		of := func(name string) module {
			return r.modules[slices.IndexFunc(r.modules, func(m module) bool { return m.name == name })]
		}
		list = append(list, suite{
			program: program{name: r.row, version: []string{python, "--version"}, what: "CPython's own " + strings.Join(parts, ", ")},
			parts:   parts,
			part:    func(t *testing.T, b *bed, part string) verdicts { return unittests(t, b, of(part), of(part).tests) },
			again: func(t *testing.T, b *bed, part string, names []string) verdicts {
				var q []string
				for _, name := range names {
					q = append(q, regexp.QuoteMeta(name))
				}
				return unittests(t, b, of(part), "^("+strings.Join(q, "|")+")$")
			},
		}.row())
	}
	return list
}

// stall is how long a suite may be without a test that ends.
const stall = 2 * time.Minute

// unittests runs the tests of a module. One that hangs is killed and has failed; those behind it run in a new process.
func unittests(t *testing.T, b *bed, m module, tests string) verdicts {
	t.Helper()
	script, err := filepath.Abs("testdata/unittests.py")
	must(t, err)
	needsFile(t, "/usr/lib/python3.11/test/test_socket.py", "apt install libpython3.11-testsuite")
	dir, err := os.MkdirTemp(b.dir, "py")
	must(t, err)
	output := filepath.Join(dir, "tests")
	for range 20 {
		cmd := b.host.command(python, script, "test."+m.name, tests, m.resources, output)
		cmd.Dir = dir
		run := b.host.begin(t, cmd)
		size, end := int64(0), time.Now().Add(stall)
		for !run.ended() && time.Now().Before(end) {
			time.Sleep(100 * time.Millisecond)
			if info, err := os.Stat(output); err == nil && info.Size() != size {
				size, end = info.Size(), time.Now().Add(stall)
			}
		}
		hung := !run.ended()
		if hung {
			_ = unix.Kill(-run.Process.Pid, unix.SIGKILL)
			<-run.done
		}
		text, _ := os.ReadFile(output)
		if bytes.HasSuffix(text, []byte("end of\n")) {
			return readVerdicts(string(text))
		}
		name := strings.TrimPrefix(lastLine(string(text)), "start ")
		if !strings.Contains(string(text), "start "+name) || name == "" {
			t.Errorf("%s ended without a test: %s", m.name, last(run.log.String(), 3000))
			return readVerdicts(string(text))
		}
		must(t, os.WriteFile(output, append(text, "fail "+name+"\n"...), 0o644))
		t.Logf("%s: hung %v, %v", name, hung, run.err)
	}
	t.Errorf("%s: too many tests hang", m.name)
	return nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// readVerdicts reads what unittests.py writes.
func readVerdicts(text string) verdicts {
	v := verdicts{}
	for line := range strings.Lines(text) {
		verdict, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if verdict == testPassed || verdict == testSkipped || verdict == testFailed && name != "" {
			if v[name] != testFailed {
				v[name] = verdict
			}
		}
	}
	return v
}
