// Command goprogram is a Go program without libc: it gets and puts files by HTTP, or serves them.
package main

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
)

func main() {
	err := fmt.Errorf("usage: goprogram get URL FILE | put URL FILE | serve FOLDER ADDRESS... | echo ADDRESS CONNECTIONS BYTES | nats ADDRESS FILE")
	if len(os.Args) > 3 {
		switch os.Args[1] {
		case "get":
			err = get(os.Args[2], os.Args[3])
		case "put":
			err = put(os.Args[2], os.Args[3])
		case "serve":
			err = serve(os.Args[2], os.Args[3:])
		case "echo":
			err = echo(os.Args[2], os.Args[3:])
		case "nats":
			err = nats(os.Args[2], os.Args[3])
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(9)
	}
}

// client accepts the certificate of the test's server.
var client = http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

// get writes what a URL has to a file, and prints the protocol.
func get(url, file string) error {
	r, err := client.Get(url)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	fmt.Print(r.Proto)
	_, err = io.Copy(f, r.Body)
	return err
}

// put sends a file, and prints the answer.
func put(url, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPut, url, f)
	if err != nil {
		return err
	}
	r, err := client.Do(req)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	_, err = io.Copy(os.Stdout, r.Body)
	return err
}

// serve serves the files of a folder, by sendfile(2). A PUT is answered with its hash, one to /echo with what it had.
func serve(folder string, addrs []string) error {
	files := http.FileServer(http.Dir(folder))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet:
			files.ServeHTTP(w, r)
		case r.URL.Path == "/echo":
			b, _ := io.ReadAll(r.Body)
			_, _ = w.Write(b)
		default:
			h := sha256.New()
			_, _ = io.Copy(h, r.Body)
			fmt.Fprintf(w, "%x", h.Sum(nil))
		}
	})
	ended := make(chan error)
	for _, addr := range addrs {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		go func() { ended <- http.Serve(l, handler) }()
	}
	return <-ended
}

// echo has a number of connections at a time to a server, and compares what it sends with what comes back.
func echo(addr string, args []string) error {
	var connections, size int
	if _, err := fmt.Sscan(args[0]+" "+args[1], &connections, &size); err != nil {
		return err
	}
	errs := make([]error, connections)
	var work sync.WaitGroup
	for i := range connections {
		work.Go(func() { errs[i] = echoOnce(addr, byte(i), size) })
	}
	work.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	fmt.Println("equal")
	return nil
}
