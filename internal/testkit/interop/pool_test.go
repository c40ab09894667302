package interop

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/l7/pool"
)

// Round robin of a pool takes backends in the order of nginx: with weights of nginx's documentation, and with others.
func TestRoundRobinHasTheOrderOfNginx(t *testing.T) {
	testnet.Program(t, "nginx")
	rng := rand.New(rand.NewPCG(8, 15))
	cases := [][]int{{5, 1, 1}, {1, 1, 1, 1}, {1, 2}, {4, 2, 1}}
	for range 30 {
		var weights []int
		for range 1 + rng.IntN(9) {
			weights = append(weights, 1+rng.IntN(12))
		}
		cases = append(cases, weights)
	}
	client := nginxUpstreams(t, cases)
	for i, weights := range cases {
		p, err := pool.New(pool.Options{}, poolBackends(weights), 1)
		if err != nil {
			t.Fatal(err)
		}
		cycle := 0
		for _, w := range weights {
			cycle += w
		}
		var got, want []string
		for range 2 * cycle {
			b, _ := p.Pick(0, 0, nil)
			got = append(got, b.Name())
			want = append(want, answer(t, client, fmt.Sprintf("http://nginx/%d/", i)))
		}
		if g, w := strings.Join(got, " "), strings.Join(want, " "); g != w {
			t.Errorf("weights %v:\n%s\nnginx:\n%s", weights, g, w)
		}
	}
}

// poolBackends returns backends 0, 1, 2 ... with weights.
func poolBackends(weights []int) (list []pool.BackendOptions) {
	for i, w := range weights {
		list = append(list, pool.BackendOptions{Name: fmt.Sprint(i), Address: netip.MustParseAddrPort("192.0.2.1:80"), Weight: w})
	}
	return list
}

// nginxUpstreams starts an nginx with an upstream for each list of weights, at the path with its number, whose servers answer
// with their numbers. It returns a client whose every connection leads to it.
func nginxUpstreams(t *testing.T, cases [][]int) *http.Client {
	dir, most := socketDir(t), 0
	conf := fmt.Sprintf(nginxHead, dir)
	front := fmt.Sprintf("server { listen unix:%s/front;\n", dir)
	for i, weights := range cases {
		most = max(most, len(weights))
		conf += fmt.Sprintf("upstream u%d {", i)
		for k, w := range weights {
			conf += fmt.Sprintf(" server unix:%s/s%d weight=%d;", dir, k, w)
		}
		conf += " }\n"
		front += fmt.Sprintf("location /%d/ { proxy_pass http://u%d; }\n", i, i)
	}
	for k := range most {
		conf += fmt.Sprintf("server { listen unix:%s/s%d; location / { return 200 %d; } }\n", dir, k, k)
	}
	at := &lane{network: "unix", http1: dir + "/front", h2: dir + "/front"}
	started(t, dir, conf+front+"}\n}\n", []*lane{at}, "nginx", "-p", dir, "-c", dir+"/conf")
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", at.http1)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

// answer returns the content of a response.
func answer(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: %d, %v", url, resp.StatusCode, err)
	}
	return string(b)
}
