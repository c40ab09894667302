// Command httpclient gets a page from an address of its own, beside the kernel on the same interface.
//
//	sudo httpclient eth1 198.18.0.3/24 http://198.18.0.2/
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/socket"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatalf("usage: %s INTERFACE ADDRESS/BITS URL", os.Args[0])
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	prefix, err := netip.ParsePrefix(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	stack, err := millrace.Open(os.Args[1], prefix)
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(get(ctx, stack, os.Args[3], os.Stdout), stack.Close()); err != nil {
		log.Fatal(err)
	}
}

// get copies the page at url to w. The host of url is numeric, because the stack has no resolver.
func get(ctx context.Context, stack *socket.Stack, url string, w io.Writer) error {
	client := http.Client{Transport: &http.Transport{DialContext: stack.DialContext}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	_, err = io.Copy(w, resp.Body)
	return err
}
