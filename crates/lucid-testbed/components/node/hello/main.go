// Hello answers every HTTP request with the name of its host, which in a pod is the pod's. It listens on the address
// that is its first argument, :8080 without one.
package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	address := ":8080"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-end
		os.Exit(0)
	}()
	name, err := os.Hostname()
	if err != nil {
		log.Fatal(err)
	}
	handler := http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(writer, name)
	})
	log.Printf("%s listens on %s", name, address)
	log.Fatal(http.ListenAndServe(address, handler))
}
