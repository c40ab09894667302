// Command httpserver serves HTTP on an address of its own, beside the kernel on the same interface.
//
//	sudo httpserver eth1 198.18.0.2/24
//	curl http://198.18.0.2/            # on another machine
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/socket"
)

// drainTime is the time that responses may take to finish, and then their last bytes to arrive.
const drainTime = 5 * time.Second

func main() {
	if len(os.Args) != 3 {
		log.Fatalf("usage: %s INTERFACE ADDRESS/BITS", os.Args[0])
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
	err = serve(ctx, stack)
	limit, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := errors.Join(err, stack.Shutdown(limit)); err != nil {
		log.Fatal(err)
	}
}

// serve is the same as in a program over package net.
func serve(ctx context.Context, stack *socket.Stack) error {
	l, err := stack.Listen("tcp", ":80")
	if err != nil {
		return err
	}
	server := http.Server{Handler: http.HandlerFunc(hello), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		limit, cancel := context.WithTimeout(context.Background(), drainTime)
		defer cancel()
		ended <- server.Shutdown(limit)
	})
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended
}

func hello(w http.ResponseWriter, r *http.Request) {
	local := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	fmt.Fprintf(w, "%s from %v to %s\n", r.URL.Path, local, r.RemoteAddr)
}
