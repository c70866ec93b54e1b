// Logs in with franz-go once for each line of standard input, and writes one line: "ok" or the error.
//
// Lines: produce TOPIC SETTING..., consume TOPIC GROUP SETTING... The words are separated by tabs, settings are
// NAME=VALUE.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const limit = 30 * time.Second

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(outcome(strings.Split(lines.Text(), "\t")))
	}
}

func outcome(words []string) string {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var err error
	switch words[0] {
	case "produce":
		err = produce(ctx, words[1], words[2:])
	case "consume":
		err = consume(ctx, words[1], words[2], words[3:])
	default:
		err = fmt.Errorf("unknown operation %q", words[0])
	}
	if err == nil {
		return "ok"
	}
	var refused *kerr.Error
	if errors.As(err, &refused) {
		return refused.Message
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

func produce(ctx context.Context, topic string, settings []string) error {
	client, err := connect(ctx, settings)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("tea")}).FirstErr()
}

func consume(ctx context.Context, topic, group string, settings []string) error {
	client, err := connect(ctx, settings, kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		if !fetches.Empty() {
			return nil
		}
	}
}

func connect(ctx context.Context, settings []string, options ...kgo.Opt) (*kgo.Client, error) {
	given := map[string]string{}
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		given[name] = value
	}
	config, err := encryption(given)
	if err != nil {
		return nil, err
	}
	options = append(options, kgo.SeedBrokers(given["bootstrap"]), kgo.DialTLSConfig(config), kgo.RequestRetries(1))
	login := scram.Auth{User: given["user"], Pass: given["password"]}
	switch given["mechanism"] {
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(login.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(login.AsSha512Mechanism()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	if err := client.Ping(ctx); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

func encryption(given map[string]string) (*tls.Config, error) {
	authority, err := os.ReadFile(given["ca"])
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AppendCertsFromPEM(authority)
	if given["certificate"] != "" {
		own, err := tls.LoadX509KeyPair(given["certificate"], given["certificate"])
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}
