/* Reads lines "NAME VERSION HEX" and says of each whether Kafka's own code takes the bytes for that message, makes JSON
 * of it, and the same bytes of the JSON. */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;

public class JudgeMessages {
    private static ByteBuffer encode(ApiMessage message, short version) {
        return MessageUtil.toByteBufferAccessor(message, version).buffer();
    }

    private static String judge(String name, short version, byte[] bytes) throws Exception {
        Class<?> type = Class.forName("org.apache.kafka.common.message." + name + "Data");
        Class<?> converter = Class.forName("org.apache.kafka.common.message." + name + "DataJsonConverter");
        ApiMessage message = (ApiMessage) type.getConstructor().newInstance();
        ByteBuffer from = ByteBuffer.wrap(bytes);
        message.read(new ByteBufferAccessor(from), version);
        if (from.hasRemaining())
            return from.remaining() + " bytes are left";
        if (!encode(message, version).equals(ByteBuffer.wrap(bytes)))
            return "Kafka encodes it to other bytes";
        if (name.equals("ProduceRequest") || name.equals("FetchResponse"))
            return null; // Kafka's JSON has the size of records, not their bytes
        JsonNode json = (JsonNode) converter.getMethod("write", type, short.class).invoke(null, message, version);
        ApiMessage again = (ApiMessage) converter.getMethod("read", JsonNode.class, short.class).invoke(null, json, version);
        if (!encode(again, version).equals(ByteBuffer.wrap(bytes)))
            return "by way of JSON Kafka encodes it to other bytes";
        return null;
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        int right = 0, wrong = 0;
        for (String line; (line = in.readLine()) != null; ) {
            String[] parts = line.split(" ", -1);
            String fault;
            try {
                fault = judge(parts[0], Short.parseShort(parts[1]), HexFormat.of().parseHex(parts[2]));
            } catch (Exception e) {
                fault = String.valueOf(e.getCause() == null ? e : e.getCause());
            }
            if (fault == null)
                right++;
            else if (wrong++ < 20)
                System.out.println(parts[0] + " version " + parts[1] + ": " + fault);
        }
        System.out.println(right + " right, " + wrong + " wrong");
        System.exit(wrong == 0 && right > 0 ? 0 : 1);
    }
}
