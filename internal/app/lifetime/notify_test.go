package lifetime

import (
	"net"
	"path/filepath"
	"testing"
)

func TestNotifyReachesTheServiceManager(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "notify"), "@millrace-notify-test"} {
		addr := &net.UnixAddr{Name: path, Net: "unixgram"}
		if path[0] == '@' {
			addr.Name = "\x00" + path[1:]
		}
		c, err := net.ListenUnixgram("unixgram", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		t.Setenv("NOTIFY_SOCKET", path)
		if err := Notify("READY=1"); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64)
		n, err := c.Read(buf)
		if err != nil || string(buf[:n]) != "READY=1" {
			t.Errorf("%s: %q, %v", path, buf[:n], err)
		}
	}
}

func TestWithoutAServiceManagerNobodyIsTold(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Notify("READY=1"); err != nil {
		t.Error(err)
	}
	t.Setenv("NOTIFY_SOCKET", "/nonexistent/notify")
	if err := Notify("READY=1"); err == nil {
		t.Error("a service manager that cannot be told is no error")
	}
}
