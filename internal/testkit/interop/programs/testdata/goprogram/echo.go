package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
)

// echoOnce posts bytes on a connection of its own, and compares the answer.
func echoOnce(addr string, seed byte, size int) error {
	sent := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(sent)
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Post("http://"+addr+"/echo", "application/octet-stream", bytes.NewReader(sent))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	got, err := io.ReadAll(r.Body)
	if err == nil && !bytes.Equal(got, sent) {
		err = fmt.Errorf("%d bytes came back of %d, or others", len(got), len(sent))
	}
	return err
}
