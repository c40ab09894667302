// Command program is a Go program without libc, for the tests of exec --seccomp. It gets URLs, or serves one request
// after the other until it is ended.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func main() {
	err := fmt.Errorf("usage: program get URL... | serve ADDRESS | lookup NAME")
	switch {
	case len(os.Args) > 2 && os.Args[1] == "get":
		err = get(os.Args[2:])
	case len(os.Args) == 3 && os.Args[1] == "serve":
		err = serve(os.Args[2])
	case len(os.Args) == 3 && os.Args[1] == "lookup":
		var addrs []string
		addrs, err = net.LookupHost(os.Args[2])
		fmt.Println(addrs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(9)
	}
}

func get(urls []string) error {
	for _, url := range urls {
		r, err := http.Get(url)
		if err != nil {
			return err
		}
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return err
		}
		fmt.Printf("%s", b)
	}
	return nil
}

func serve(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println("listening on", l.Addr())
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s asks %s for %s", r.RemoteAddr, r.Context().Value(http.LocalAddrContextKey), r.URL)
	}))
}
