package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// role in the environment makes the test binary a new process.
const role = "MILLRACE_TEST_UPGRADE_ROLE"

func TestMain(m *testing.M) {
	if r := os.Getenv(role); r != "" {
		os.Exit(newProcess(r))
	}
	os.Exit(m.Run())
}

// newProcess is a new process that serves, or fails in a way.
func newProcess(role string) int {
	if role == "crashes" {
		return 7
	}
	p, err := Inherit()
	if err != nil || p == nil {
		fmt.Fprintln(os.Stderr, "inherit:", p, err)
		return 8
	}
	switch role {
	case "refuses":
		p.Refuse(errors.New("line 3: unknown key"), 422)
		return 3
	case "hangs":
		select {}
	case "chooses version 0":
		p.version = 0
	}
	var listeners []net.Listener
	p.Take(TCP, func(_ string, f *os.File) {
		l, err := net.FileListener(f)
		if f.Close(); err == nil {
			listeners = append(listeners, l)
		}
	})
	devices, err := p.Prepared("2.0", []string{"at"})
	if err != nil {
		fmt.Fprintln(os.Stderr, "prepared:", err)
		return 9
	}
	served := Served{Gap: time.Duration(devices.At)}
	if devices.Table != nil {
		text, _ := io.ReadAll(devices.Table)
		served.Entered = len(text)
	}
	if role == "crashes when it is to serve" {
		return 10
	}
	go func() {
		for {
			c, err := listeners[0].Accept()
			if err != nil {
				return
			}
			previous, exe := p.Previous()
			if string(p.State) != string(longState) {
				fmt.Fprint(c, "another state: ")
			}
			fmt.Fprintf(c, "%d of %d, %s, %s %v", p.Generation, len(listeners), p.Build, previous.Path, exe != nil)
			c.Close()
		}
	}()
	if role == "crashes as it serves" {
		time.AfterFunc(50*time.Millisecond, func() { os.Exit(11) })
	}
	p.Serving(served)
	if role == "serves once" {
		time.Sleep(300 * time.Millisecond)
		return 0
	}
	select {}
}

// listen returns a listening socket and its file.
func listen(t *testing.T) (net.Addr, *os.File) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return l.Addr(), f
}

// begin starts a new process of a role, and sends it an offer with sockets.
func begin(t *testing.T, as string, files ...*os.File) (*Successor, error) {
	t.Helper()
	t.Setenv(role, as)
	exe, err := Executable()
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	s, err := Start(Program{Path: os.Args[0]}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Abandon)
	return s, s.Offer(&Offer{Generation: 3, Build: "1.2", State: longState, Program: Program{Path: "/bin/old"}}, exe, func(socket func(Kind, string, ...*os.File) error) error {
		return socket(TCP, "", files...)
	})
}

const patience = time.Minute

// longState is a state of more bytes than a message has.
var longState = json.RawMessage(`"` + strings.Repeat("x", 3*mostBytes) + `"`)

// ask connects and returns what the server sends.
func ask(a net.Addr) (string, error) {
	c, err := net.Dial("tcp", a.String())
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	b, err := io.ReadAll(c)
	return string(b), err
}

func TestANewProcessServesOnTheSocketsOfTheOldOne(t *testing.T) {
	at, f := listen(t)
	files := []*os.File{f}
	for len(files) < mostFiles+2 { // more than one message holds
		files = append(files, f)
	}
	s, err := begin(t, "serves once", files...)
	build, left := "", []string(nil)
	if err == nil {
		build, left, err = s.Prepared(t.Context(), patience)
	}
	table, e := os.CreateTemp(t.TempDir(), "")
	if e == nil {
		defer table.Close()
		_, e = table.WriteString("a table")
	}
	if e == nil {
		_, e = table.Seek(0, io.SeekStart)
	}
	served := Served{}
	if err = errors.Join(err, e); err == nil {
		served, err = s.Serve(t.Context(), patience, Suspended{At: 5, Table: table})
	}
	if served.Gap != 5 || served.Entered != 7 {
		t.Errorf("%+v", served)
	}
	if err == nil {
		err = s.Watch(t.Context(), 20*time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	if build != "2.0" || len(left) != 1 || left[0] != "at" {
		t.Errorf("version %q, %q are left", build, left)
	}
	if got, err := ask(at); err != nil || got != "3 of 252, 1.2, /bin/old true" {
		t.Errorf("%q, %v", got, err)
	}
	if err := s.Commit(); err != nil {
		t.Error(err)
	}
	<-s.ended // it ends after the message
}

// TestWhatFailsIsSaid has new processes that fail in each step.
func TestWhatFailsIsSaid(t *testing.T) {
	for as, want := range map[string]string{
		"crashes":                     "the new process has ended (exit status 7)",
		"refuses":                     "line 3: unknown key",
		"hangs":                       "was not prepared within",
		"chooses version 0":           "has chosen version 0",
		"crashes when it is to serve": "the new process has ended (exit status 10)",
		"crashes as it serves":        "the new process has ended (exit status 11)",
	} {
		t.Run(as, func(t *testing.T) {
			_, f := listen(t)
			s, err := begin(t, as, f)
			limit := patience
			if as == "hangs" {
				limit = 300 * time.Millisecond
			}
			if err == nil {
				_, _, err = s.Prepared(t.Context(), limit)
			}
			if err == nil {
				_, err = s.Serve(t.Context(), limit, Suspended{})
			}
			if err == nil {
				err = s.Watch(t.Context(), patience)
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
			if r := new(Refused); (as == "refuses") != errors.As(err, &r) || as == "refuses" && r.Code != 422 {
				t.Errorf("%#v", err)
			}
			s.Abandon()
			if err := unix.Kill(s.PID(), 0); err == nil {
				t.Error("the process is left")
			}
		})
	}
}

// TestTheEndOfTheRequestEndsTheNewProcess cancels while the new process hangs.
func TestTheEndOfTheRequestEndsTheNewProcess(t *testing.T) {
	s, err := begin(t, "hangs")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("the gateway stops")
	time.AfterFunc(50*time.Millisecond, func() { cancel(stopped) })
	if _, _, err := s.Prepared(ctx, patience); !errors.Is(err, stopped) {
		t.Error(err)
	}
}

func TestProgramsThatAreNone(t *testing.T) {
	empty := t.TempDir() + "/empty"
	if err := os.WriteFile(empty, nil, 0o755); err != nil { // what a full disk leaves of a program
		t.Fatal(err)
	}
	for _, path := range []string{t.TempDir(), "/nonexistent/millrace", empty} {
		if s, err := Start(Program{Path: path}, nil); err == nil {
			s.Abandon()
			t.Errorf("%s was started", path)
		}
	}
}

// TestAReplacedExecutableStarts runs this program by its descriptor, under a path that is not there.
func TestAReplacedExecutableStarts(t *testing.T) {
	exe, err := Executable()
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	low, err := unix.FcntlInt(exe.Fd(), unix.F_DUPFD_CLOEXEC, 3) // as it comes from another process
	if err != nil {
		t.Fatal(err)
	}
	if low < lowest {
		exe.Close()
		exe = os.NewFile(uintptr(low), "exe")
	}
	t.Setenv(role, "refuses")
	s, err := Start(Program{Path: "/nonexistent/millrace"}, exe)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Abandon()
	err = s.Offer(&Offer{}, nil, func(func(Kind, string, ...*os.File) error) error { return nil })
	if err == nil {
		_, _, err = s.Prepared(t.Context(), patience)
	}
	if err == nil || err.Error() != "line 3: unknown key" {
		t.Error(err)
	}
}

// talk has an old process of another version, or one that is none, send messages; it returns the new one's error and its answer.
func talk(t *testing.T, send func(c conn) error) (error, string) {
	t.Helper()
	c, other, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := send(c); err != nil {
		t.Fatal(err)
	}
	_ = c.CloseWrite()
	p, err := inherit(other)
	if err == nil {
		p.Close()
		return nil, ""
	}
	m, e := c.receive(time.Now().Add(patience))
	if e != nil || m.Kind != kindRefused {
		t.Errorf("the old process got %+v, %v", m, e)
	}
	return err, string(m.Body)
}

func TestVersionsOfTheFormat(t *testing.T) {
	offer := func(least, most int, more string) func(c conn) error {
		return func(c conn) error {
			body := fmt.Sprintf(`{"least_version":%d,"most_version":%d,"build":"0.9"%s}`, least, most, more)
			if err := c.send(kindOffer, json.RawMessage(body)); err != nil {
				return err
			}
			return c.send(kindEnd, nil)
		}
	}
	for _, c := range []struct {
		name string
		send func(c conn) error
		want string
	}{
		{"this one", offer(1, 1, ""), ""},
		{"with a field that is not known", offer(1, 1, `,"colour":"red"`), ""},
		{"a later one that knows this one", offer(1, 9, ""), ""},
		{"a later one", offer(2, 9, ""), "speaks versions 2 to 9"},
		{"an earlier one", offer(0, 0, ""), "there was no offer"},
		{"no offer", func(c conn) error { return c.send(kindEnd, nil) }, "there was no offer"},
		{"a kind that is not known", func(c conn) error { return c.send("song", nil) }, `is not expected here`},
		{"no JSON", func(c conn) error { _, err := c.Write([]byte("hello")); return err }, "not understood"},
		{"nothing", func(conn) error { return nil }, "has ended"},
	} {
		err, answer := talk(t, c.send)
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		case c.want != "" && !strings.Contains(answer, c.want):
			t.Errorf("%s: the old process learns %s", c.name, answer)
		}
	}
}

func TestAProcessThatReplacesNoneInheritsNothing(t *testing.T) {
	if p, err := Inherit(); p != nil || err != nil {
		t.Error(p, err)
	}
	for _, text := range []string{"x", "2", "-1"} {
		t.Setenv(variable, text)
		if p, err := Inherit(); p != nil || err == nil {
			t.Errorf("%q: %v, %v", text, p, err)
		}
		if _, there := os.LookupEnv(variable); there {
			t.Error("the variable is left for programs that this one starts")
		}
	}
}
