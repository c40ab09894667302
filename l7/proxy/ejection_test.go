package proxy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/pool"
)

// A request that the gateway refuses in the middle counts neither for nor against the backend: a client must not be able to keep a
// backend that fails from its ejection.
func TestRefusedContentKeepsTheRowOfFailures(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, c := range []struct{ name, content, answer string }{
		{"a malformed chunk", "zz\r\n", "HTTP/1.1 400 "},
		{"a body above the limit", "b\r\n01234567890\r\n", "HTTP/1.1 413 "},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newMemRig(t, func(r *memRig, tree *Tree) {
				tree.Listeners[0].Limits.Body = 10
				o := pool.Options{Name: "p", Outlier: &pool.Outlier{Errors: 5, MaxEjected: 100}, Balance: pool.ConsistentHash}
				all := []pool.BackendOptions{{Name: "b", Address: memBackend}, {Name: "c", Address: memBackend}}
				must(t, r.to.Update(clock.Time(0), o, all)) // all requests have one hash
			})
			r.backend = failToGet
			fail := func(n int) {
				t.Helper()
				for range n {
					if got := r.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 500 ") {
						t.Fatalf("%q", got)
					}
				}
			}
			ejected := func() (n int) {
				for _, b := range r.to.Status(r.worker.Now).Backends {
					if b.Ejected > 0 {
						n++
					}
				}
				return n
			}
			fail(4)
			client := r.connect(memHTTP1)
			client.Write([]byte(head))
			r.run()
			client.Write([]byte(c.content))
			r.run()
			if got := string(client.Take()); !strings.HasPrefix(got, c.answer) {
				t.Fatalf("%q", got)
			}
			if n := ejected(); n != 0 {
				t.Errorf("%d backends are ejected for what a client has sent", n)
			}
			fail(1)
			if n := ejected(); n != 1 {
				t.Errorf("%d backends are ejected after five failures", n)
			}
			r.nothingLeft(client)
		})
	}
}

// failToGet is a backend that answers 500 to GET and nothing to other methods.
func failToGet(p *memtransport.Peer) {
	p.Handler = func(p *memtransport.Peer) {
		if strings.HasPrefix(string(p.Take()), "GET ") {
			p.Write([]byte("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"))
		}
		if p.Ended {
			p.Close()
		}
	}
}

// Every failure has a class: without one it counts as a success of the backend.
func TestEveryFailureHasAClass(t *testing.T) {
	files, err := filepath.Glob("*.go")
	must(t, err)
	n := 0
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		must(t, err)
		ast.Inspect(file, func(node ast.Node) bool {
			literal, ok := node.(*ast.CompositeLit)
			if !ok {
				return true
			}
			if id, ok := literal.Type.(*ast.Ident); !ok || id.Name != "failure" {
				return true
			}
			n++
			if !slices.ContainsFunc(literal.Elts, isClass) {
				t.Errorf("%s: a failure without a class", name)
			}
			return true
		})
	}
	if n < 20 {
		t.Errorf("%d failures were found", n)
	}
}

// isClass reports whether an element of a literal sets the field class.
func isClass(e ast.Expr) bool {
	kv, ok := e.(*ast.KeyValueExpr)
	if !ok {
		return false
	}
	key, ok := kv.Key.(*ast.Ident)
	return ok && key.Name == "class"
}
