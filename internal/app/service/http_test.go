package service

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// curl runs curl and returns what it printed.
func curl(t *testing.T, args ...string) []byte {
	t.Helper()
	testnet.Program(t, "curl")
	cmd := exec.Command("curl", append([]string{"-sS", "--fail", "--max-time", "20"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v %s", cmd.Args, err, &stderr)
	}
	return out
}

func TestCurlGetsAndPuts(t *testing.T) {
	_, addr := start(t, HTTP, Config{})
	url := "http://" + addr
	const size = 3 << 20
	want, _ := io.ReadAll(&pattern{size: size})
	if got := curl(t, url+"/bytes/3M"); !bytes.Equal(got, want) {
		t.Errorf("/bytes/3M gave %d bytes, %d wanted", len(got), size)
	}
	if got := curl(t, "-r", "70000-70009", url+"/bytes/3M"); !bytes.Equal(got, want[70000:70010]) {
		t.Errorf("a range is %x, want %x", got, want[70000:70010])
	}
	if got := string(curl(t, url+"/")); !strings.Contains(got, "http://"+addr+"/bytes/N") {
		t.Errorf("the page is %q", got)
	}
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, want, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := curl(t, "-T", file, url+"/echo"); !bytes.Equal(got, want) {
		t.Errorf("the echo is %d bytes of %d, or others", len(got), size)
	}
	if got, sum := string(curl(t, "-T", file, url+"/sum")), fmt.Sprintf("%x %d\n", sha256.Sum256(want), size); got != sum {
		t.Errorf("the sum is %q, want %q", got, sum)
	}
	if got := curl(t, "-H", "Transfer-Encoding: chunked", "-T", file, url+"/echo"); !bytes.Equal(got, want) {
		t.Errorf("the echo of chunks is %d bytes of %d, or others", len(got), size)
	}
}

func TestSizesAreRead(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "17": 17, "64k": 65536, "2K": 2048, "10M": 10 << 20, "1024G": 1 << 40, "1099511627776": 1 << 40,
		"": -1, "k": -1, "-1": -1, "1.5M": -1, "1025G": -1, "1099511627777": -1, "9223372036854775807k": -1, "1T": -1, "+1": -1,
	} {
		n, err := parseSize(text)
		if err != nil {
			n = -1
		}
		if n != want {
			t.Errorf("%q is %d, %v; want %d", text, n, err, want)
		}
	}
}

func TestWrongRequestsAreRefused(t *testing.T) {
	_, addr := start(t, HTTP, Config{})
	for path, want := range map[string]int{"/bytes/x": 400, "/nothing": 404, "/echo": 405} {
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, resp.Status, want)
		}
	}
}
