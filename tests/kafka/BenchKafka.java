import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Java's clients, for scripts/bench_broker.py. One process for all measurements, so that its code is compiled: each line
 * of the input is a command, each line of the output its figures as JSON.
 *
 *   create BROKERS TOPIC REPLICAS            until the topic has its leader and replicas
 *   delete BROKERS TOPIC
 *   latency BROKERS TOPIC BYTES ACKS COUNT   one record in flight
 *   produce BROKERS TOPIC BYTES ACKS MS BATCH   as many as it can; BATCH 0: each in a batch of its own
 *   consume BROKERS TOPIC                    from the first record to the last
 *   fetch BROKERS TOPIC COUNT                records that are there, one batch a Fetch
 *   end BROKERS TOPIC BYTES ACKS COUNT       from send() until the consumer has it
 *   events BROKERS TOPIC ACKS RATE MS BURST  so many a second, and BURST at once in the middle; mean delays
 */
public class BenchKafka {
	static final String BYTES = "org.apache.kafka.common.serialization.ByteArray";
	static final Duration WAIT = Duration.ofMillis(200);
	static final long LIMIT_NS = 30_000_000_000L;

	static Properties of(String brokers) {
		Properties properties = new Properties();
		properties.put("bootstrap.servers", brokers);
		return properties;
	}

	static KafkaProducer<byte[], byte[]> producer(String brokers, String acks, String batch, String linger) {
		Properties properties = of(brokers);
		properties.put("acks", acks);
		properties.put("enable.idempotence", acks.equals("all") ? "true" : "false");
		properties.put("batch.size", batch);
		properties.put("linger.ms", linger);
		properties.put("buffer.memory", batch.equals("0") ? "2097152" : "67108864"); // which has to be sent at the end
		properties.put("key.serializer", BYTES + "Serializer");
		properties.put("value.serializer", BYTES + "Serializer");
		return new KafkaProducer<>(properties);
	}

	static KafkaConsumer<byte[], byte[]> consumer(String brokers, TopicPartition partition, String fetchBytes) {
		Properties properties = of(brokers);
		properties.put("enable.auto.commit", "false");
		properties.put("auto.offset.reset", "earliest");
		properties.put("max.partition.fetch.bytes", fetchBytes);
		properties.put("max.poll.records", "100000");
		properties.put("key.deserializer", BYTES + "Deserializer");
		properties.put("value.deserializer", BYTES + "Deserializer");
		KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties);
		consumer.assign(List.of(partition));
		return consumer;
	}

	static void until(long end) throws Exception {
		if (System.nanoTime() > end)
			throw new Exception("not done after 30 s");
	}

	static String latency(double[] times) {
		Arrays.sort(times);
		return String.format(Locale.ROOT, "{\"p50_us\": %.3f, \"p99_us\": %.3f}", times[times.length / 2],
				times[times.length * 99 / 100]);
	}

	static String rate(long count, long bytes, long took) {
		return String.format(Locale.ROOT, "{\"per_s\": %.1f, \"mb_s\": %.3f}", count * 1e9 / took, bytes * 1e3 / took);
	}

	static String create(String brokers, String topic, short replicas) throws Exception {
		long end = System.nanoTime() + LIMIT_NS;
		try (Admin admin = Admin.create(of(brokers))) {
			admin.createTopics(List.of(new NewTopic(topic, 1, replicas))).all().get();
			for (;; until(end)) {
				try {
					var partition = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().get(0);
					if (partition.leader() != null && partition.isr().size() == replicas)
						return "{}";
				} catch (ExecutionException notYet) {
					// it is on its way to this broker
				}
				Thread.sleep(50);
			}
		}
	}

	static String delete(String brokers, String topic) throws Exception {
		try (Admin admin = Admin.create(of(brokers))) {
			admin.deleteTopics(List.of(topic)).all().get();
		}
		return "{}";
	}

	static String oneInFlight(String brokers, String topic, int bytes, String acks, int count) throws Exception {
		byte[] value = new byte[bytes];
		double[] times = new double[count];
		int warm = count / 2;
		try (var producer = producer(brokers, acks, "0", "0")) {
			for (int i = 0; i < warm + count; i++) {
				long sent = System.nanoTime();
				producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
				if (i >= warm)
					times[i - warm] = (System.nanoTime() - sent) / 1e3;
			}
		}
		return latency(times);
	}

	static void sendUntil(KafkaProducer<byte[], byte[]> producer, String topic, byte[] value, AtomicLong done, long end)
			throws Exception {
		AtomicLong failed = new AtomicLong();
		do {
			for (int i = 0; i < 16; i++)
				producer.send(new ProducerRecord<>(topic, 0, null, value),
						(metadata, error) -> (error == null ? done : failed).incrementAndGet());
		} while (System.nanoTime() < end);
		producer.flush();
		if (failed.get() > 0)
			throw new Exception(failed + " records were not taken");
	}

	static String produce(String brokers, String topic, int bytes, String acks, long ms, String batch) throws Exception {
		byte[] value = new byte[bytes];
		AtomicLong done = new AtomicLong();
		try (var producer = producer(brokers, acks, batch, batch.equals("0") ? "0" : "5")) {
			sendUntil(producer, topic, value, done, System.nanoTime() + 500_000_000L);
			done.set(0);
			long start = System.nanoTime();
			sendUntil(producer, topic, value, done, start + ms * 1_000_000);
			return rate(done.get(), done.get() * bytes, System.nanoTime() - start);
		}
	}

	static String consume(String brokers, TopicPartition partition) throws Exception {
		long giveUp = System.nanoTime() + LIMIT_NS, start = 0, count = 0, bytes = 0, at = -1;
		try (var consumer = consumer(brokers, partition, "1048576")) {
			long end = consumer.endOffsets(List.of(partition)).get(partition);
			consumer.seekToBeginning(List.of(partition));
			for (; at < end - 1; until(giveUp)) {
				for (ConsumerRecord<byte[], byte[]> record : consumer.poll(WAIT)) {
					at = record.offset();
					if (start > 0) {
						count++;
						bytes += record.value().length;
					}
				}
				start = start == 0 && at >= 0 ? System.nanoTime() : start;
			}
			return rate(count, bytes, System.nanoTime() - start);
		}
	}

	static String fetch(String brokers, TopicPartition partition, int count) throws Exception {
		long giveUp = System.nanoTime() + LIMIT_NS, bytes = 0, start = 0;
		double[] times = new double[count];
		int warm = count / 5;
		try (var consumer = consumer(brokers, partition, "1")) {
			consumer.seekToBeginning(List.of(partition));
			for (int i = 0; i < warm + count; i++) {
				long asked = System.nanoTime();
				var records = consumer.poll(WAIT);
				for (; records.isEmpty(); until(giveUp))
					records = consumer.poll(WAIT);
				if (i < warm)
					continue;
				start = i == warm ? asked : start;
				times[i - warm] = (System.nanoTime() - asked) / 1e3;
				for (var record : records)
					bytes += record.value().length;
			}
			double mb = bytes * 1e3 / (System.nanoTime() - start);
			return latency(times).replace("}", String.format(Locale.ROOT, ", \"mb_s\": %.3f}", mb));
		}
	}

	static String toTheEnd(String brokers, TopicPartition partition, int bytes, String acks, int count) throws Exception {
		double[] times = new double[count];
		int warm = count / 2;
		try (var producer = producer(brokers, acks, "0", "0"); var consumer = consumer(brokers, partition, "1048576")) {
			consumer.seekToEnd(List.of(partition));
			consumer.position(partition);
			for (int i = 0; i < warm + count; i++) {
				long sent = System.nanoTime(), giveUp = sent + LIMIT_NS;
				producer.send(new ProducerRecord<>(partition.topic(), 0, null, new byte[bytes]));
				while (consumer.poll(WAIT).isEmpty())
					until(giveUp);
				if (i >= warm)
					times[i - warm] = (System.nanoTime() - sent) / 1e3;
			}
		}
		return latency(times);
	}

	static void sendEvents(KafkaProducer<byte[], byte[]> producer, String topic, int rate, long ms, int burst) {
		long start = System.nanoTime(), count = rate * ms / 1000;
		for (long i = 0; i < count; i++) {
			long due = start + i * 1_000_000_000 / rate;
			while (System.nanoTime() < due)
				java.util.concurrent.locks.LockSupport.parkNanos(due - System.nanoTime());
			for (int k = i == count / 2 ? burst : 0; k >= 0; k--)
				producer.send(new ProducerRecord<>(topic, 0, null,
						ByteBuffer.allocate(100).putLong(k == 0 ? due : System.nanoTime()).put((byte) (k == 0 ? 0 : 1)).array()));
		}
		producer.flush();
	}

	static String events(String brokers, TopicPartition partition, String acks, int rate, long ms, int burst)
			throws Exception {
		long giveUp = System.nanoTime() + ms * 1_000_000 + LIMIT_NS, seen = 0, count = rate * ms / 1000 + burst;
		double[] sums = new double[2];
		try (var producer = producer(brokers, acks, "16384", "0"); var consumer = consumer(brokers, partition, "1048576")) {
			consumer.seekToEnd(List.of(partition));
			consumer.position(partition);
			Thread sender = new Thread(() -> sendEvents(producer, partition.topic(), rate, ms, burst));
			sender.start();
			for (; seen < count; until(giveUp))
				for (ConsumerRecord<byte[], byte[]> record : consumer.poll(WAIT)) {
					ByteBuffer value = ByteBuffer.wrap(record.value());
					double delay = (System.nanoTime() - value.getLong()) / 1e3;
					sums[value.get()] += delay;
					seen++;
				}
			sender.join();
		}
		return String.format(Locale.ROOT, "{\"mean_us\": %.3f, \"constant_us\": %.3f, \"burst_us\": %.3f}",
				(sums[0] + sums[1]) / count, sums[0] / (count - burst), burst == 0 ? 0 : sums[1] / burst);
	}

	static String run(String[] words) throws Exception {
		TopicPartition partition = new TopicPartition(words[2], 0);
		switch (words[0]) {
		case "create":
			return create(words[1], words[2], Short.parseShort(words[3]));
		case "delete":
			return delete(words[1], words[2]);
		case "latency":
			return oneInFlight(words[1], words[2], Integer.parseInt(words[3]), words[4], Integer.parseInt(words[5]));
		case "produce":
			return produce(words[1], words[2], Integer.parseInt(words[3]), words[4], Long.parseLong(words[5]), words[6]);
		case "consume":
			return consume(words[1], partition);
		case "fetch":
			return fetch(words[1], partition, Integer.parseInt(words[3]));
		case "end":
			return toTheEnd(words[1], partition, Integer.parseInt(words[3]), words[4], Integer.parseInt(words[5]));
		case "events":
			return events(words[1], partition, words[3], Integer.parseInt(words[4]), Long.parseLong(words[5]),
					Integer.parseInt(words[6]));
		default:
			throw new Exception("there is no command " + words[0]);
		}
	}

	public static void main(String[] arguments) throws Exception {
		BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
		for (String line = commands.readLine(); line != null; line = commands.readLine()) {
			String answer;
			try {
				answer = run(line.split(" "));
			} catch (Exception error) {
				answer = "{\"error\": \"" + String.valueOf(error).replaceAll("[^\\w .:,-]", " ") + "\"}";
			}
			System.out.println(answer);
			System.out.flush();
		}
	}
}
